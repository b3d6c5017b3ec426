//! Examples of what the cache answers.

use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

const OID: Oid = Oid(7);
const MB: usize = 1 << 20;

fn cache() -> (Cache, Stream) {
    let cache = Cache::new(20 * MB);
    let stream = cache.begin_stream();
    (cache, stream)
}

fn span(revision: Option<Revision>) -> Option<(u64, Option<u64>)> {
    revision.map(|revision| (revision.serial.0, revision.end.map(|end| end.0)))
}

#[test]
fn a_current_revision_is_current_until_the_notice_of_another() {
    let (cache, stream) = cache();
    cache.insert(stream, OID, Tid(3), None, b"three");
    assert_eq!(span(cache.lookup(OID, Tid::MAX)), Some((3, None)));
    assert_eq!(cache.lookup(OID, Tid(3)), None);
    cache.invalidate(stream, Tid(5), [OID, Oid(8)]);
    assert_eq!(cache.last_tid(), Tid(5));
    assert_eq!(cache.lookup(OID, Tid::MAX), None);
    assert_eq!(span(cache.lookup(OID, Tid(5))), Some((3, Some(5))));
    assert_eq!(&cache.lookup_serial(OID, Tid(3)).unwrap().data[..], b"three");
    assert_eq!(cache.lookup_serial(OID, Tid(5)), None);
}

#[test]
fn what_a_transaction_of_ours_wrote_is_current() {
    let (cache, stream) = cache();
    cache.insert(stream, OID, Tid(3), None, b"three");
    cache.insert(stream, Oid(8), Tid(3), None, b"three");
    cache.finish(stream, Tid(6), [(OID, Some(&b"six"[..])), (Oid(8), None)]);
    assert_eq!(span(cache.lookup(OID, Tid::MAX)), Some((6, None)));
    assert_eq!(span(cache.lookup(OID, Tid(6))), Some((3, Some(6))));
    assert_eq!(cache.lookup(Oid(8), Tid::MAX), None);
    assert_eq!(span(cache.lookup(Oid(8), Tid(6))), Some((3, Some(6))));
    assert_eq!(cache.last_tid(), Tid(6));
}

#[test]
fn a_cache_that_forgets_its_revisions_keeps_its_place_in_the_stream() {
    let (cache, stream) = cache();
    cache.insert(stream, OID, Tid(3), Some(Tid(4)), b"three");
    cache.insert(stream, OID, Tid(4), None, b"four");
    cache.invalidate(stream, Tid(5), [Oid(8)]);
    cache.forget_revisions();
    assert_eq!((cache.lookup(OID, Tid::MAX), cache.lookup(OID, Tid(4))), (None, None));
    assert_eq!(cache.last_tid(), Tid(5));
    cache.insert(stream, OID, Tid(4), None, b"four");
    assert_eq!(span(cache.lookup(OID, Tid::MAX)), Some((4, None)));
}

#[test]
fn what_an_older_connection_still_delivers_is_dropped() {
    let (cache, old) = cache();
    cache.insert(old, OID, Tid(3), None, b"three");
    let new = cache.begin_stream();
    cache.insert(old, OID, Tid(1), Some(Tid(3)), b"one");
    cache.invalidate(old, Tid(5), [OID]);
    cache.finish(old, Tid(6), [(OID, None)]);
    cache.clear(old, Tid(7));
    assert_eq!(cache.last_tid(), Tid::ZERO);
    assert_eq!(span(cache.lookup(OID, Tid::MAX)), Some((3, None)));
    cache.invalidate(new, Tid(5), [OID]);
    assert_eq!(cache.lookup(OID, Tid::MAX), None);
}

#[test]
fn after_an_absence_what_was_changed_is_not_known_and_all_else_still_is() {
    let (cache, stream) = cache();
    for oid in 1..=3 {
        cache.insert(stream, Oid(oid), Tid(2), None, b"two");
    }
    cache.invalidate(stream, Tid(4), [Oid(1)]);
    let stream = cache.begin_stream();
    cache.verified(stream, Tid(9), [Oid(1), Oid(2)]);
    assert_eq!(cache.last_tid(), Tid(9));
    assert_eq!(span(cache.lookup(Oid(1), Tid(4))), Some((2, Some(4))));
    assert_eq!(cache.lookup(Oid(2), Tid(3)), None);
    assert_eq!(span(cache.lookup(Oid(3), Tid::MAX)), Some((2, None)));
    cache.clear(stream, Tid(8));
    assert!(cache.is_empty());
    assert_eq!((cache.last_tid(), cache.lookup(Oid(3), Tid::MAX)), (Tid(8), None));
}

#[test]
fn an_end_before_the_beginning_is_not_believed() {
    let (cache, stream) = cache();
    cache.insert(stream, OID, Tid(3), Some(Tid(3)), b"three");
    cache.insert(stream, OID, Tid(3), Some(Tid(2)), b"three");
    assert!(cache.is_empty());
}

#[test]
fn a_revision_that_would_take_most_of_a_shard_is_not_kept() {
    let cache = Cache::new(2 * MB);
    let stream = cache.begin_stream();
    cache.insert(stream, OID, Tid(3), None, &vec![1; MB]);
    assert!(cache.is_empty());
    cache.insert(stream, OID, Tid(3), None, &vec![1; 7 * MB / 8]);
    assert!(cache.knows(OID, Tid::MAX));
    let nothing = Cache::new(0);
    nothing.insert(nothing.begin_stream(), OID, Tid(3), None, b"three");
    assert!(nothing.is_empty());
}

#[test]
fn a_revision_that_just_fits_into_half_a_shard_is_kept() {
    let cache = Cache::new(2 * MB);
    let stream = cache.begin_stream();
    let half = cache.objects.history_bytes_max();
    cache.insert(stream, OID, Tid(3), None, &vec![1; half - 1000]);
    assert!(cache.knows(OID, Tid::MAX));
    cache.insert(stream, Oid(8), Tid(3), None, &vec![1; half]);
    assert!(!cache.knows(Oid(8), Tid::MAX));
}

#[test]
fn metrics_tell_revisions_found_from_those_that_were_not() {
    let (cache, stream) = cache();
    cache.insert(stream, OID, Tid(3), Some(Tid(5)), b"three");
    assert!(cache.lookup(OID, Tid(4)).is_some());
    assert!(cache.lookup(OID, Tid(6)).is_none());
    assert!(cache.lookup(Oid(8), Tid(4)).is_none());
    assert!(!cache.knows(Oid(8), Tid(4)));
    let metrics = cache.metrics();
    assert_eq!((metrics.hits, metrics.misses, metrics.evictions), (1, 2, 0));
    assert_eq!((metrics.objects, metrics.bytes_max), (1, 20 * MB));
    assert!(metrics.bytes > 5 && metrics.bytes < 1000);
}

/// The table may be half empty, and each entry has an index in the map beside it.
#[test]
fn an_object_weighs_its_data_and_its_share_of_the_table() {
    let (cache, stream) = cache();
    cache.insert(stream, OID, Tid(3), None, &[1; 100]);
    let entry = size_of::<(Oid, History)>() + 40;
    assert_eq!(cache.metrics().bytes, 100 + 64 + 2 * entry + 12);
}

#[test]
fn reading_ten_times_the_cache_once_does_not_throw_out_what_is_used() {
    const DATA_BYTES: usize = 1000;
    let cache = Cache::new(8 * MB);
    let stream = cache.begin_stream();
    let data = [1; DATA_BYTES];
    let hot = 0..(4 * MB / DATA_BYTES) as u64;
    for oid in hot.clone() {
        cache.insert(stream, Oid(oid), Tid(1), None, &data);
        cache.lookup(Oid(oid), Tid::MAX);
    }
    for cold in 1_000_000..1_000_000 + (80 * MB / DATA_BYTES) as u64 {
        cache.insert(stream, Oid(cold), Tid(1), None, &data);
    }
    let kept = hot.clone().filter(|&oid| cache.knows(Oid(oid), Tid::MAX)).count();
    assert!(kept * 100 > hot.count() * 95, "{kept} kept");
    let metrics = cache.metrics();
    assert!(metrics.evictions > 70_000 && metrics.bytes <= 8 * MB, "{metrics:?}");
}

/// Whether transaction `tid` writes the object; each writes one object in three.
fn is_written(oid: u64, tid: u64) -> bool {
    let mixed = oid.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ tid.wrapping_mul(0xd1b5_4a32_d192_ed03);
    mixed.is_multiple_of(3)
}

/// The last transaction before `before` that wrote the object.
fn serial_before(oid: u64, before: u64) -> Option<u64> {
    (1..before).rev().find(|&tid| is_written(oid, tid))
}

#[test]
fn threads_that_look_things_up_see_each_transaction_wholly_or_not_at_all() {
    const OBJECTS: u64 = 50;
    let (cache, done) = (Cache::new(4 * MB), AtomicBool::new(false));
    let stream = cache.begin_stream();
    thread::scope(|scope| {
        let readers = [0, 1, 2].map(|first| {
            let (cache, done) = (&cache, &done);
            scope.spawn(move || {
                let mut hits = 0;
                let mut oid = first;
                while !done.load(Ordering::Acquire) {
                    oid = (oid + 7) % OBJECTS;
                    let before = cache.last_tid().next();
                    if let Some(revision) = cache.lookup(Oid(oid), before) {
                        assert_eq!(Some(revision.serial.0), serial_before(oid, before.0));
                        assert_eq!(revision.data[..], revision.serial.to_bytes());
                        hits += 1;
                    }
                }
                hits
            })
        });
        for tid in 1..20_000 {
            let written = (0..OBJECTS).filter(|&oid| is_written(oid, tid)).map(Oid);
            if tid % 2 == 0 {
                cache.invalidate(stream, Tid(tid), written);
            } else {
                let data = tid.to_be_bytes();
                cache.finish(stream, Tid(tid), written.map(|oid| (oid, Some(&data[..]))));
            }
        }
        done.store(true, Ordering::Release);
        let hits: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(hits > 0);
    });
}
