//! Compares the memory that the cache uses, counted by the allocator, with its own count.
//!
//! A single test, because the allocator counts for all threads of the process.

#![forbid(unsafe_code)]

use peak_alloc::PeakAlloc;
use zodium_client::cache::Cache;
use zodium_types::{Oid, Tid};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const BYTES_MAX: usize = 16 << 20;

/// Fills a cache several times over with objects of one size; returns the bytes it uses, the bytes
/// it counts, and its number of objects.
fn fill(object_bytes: usize, revisions: u64) -> (usize, usize, usize) {
    let before = MEMORY.current_usage();
    let cache = Cache::new(BYTES_MAX);
    let stream = cache.begin_stream();
    let data = vec![7; object_bytes];
    let objects = (4 * BYTES_MAX / (object_bytes + 300)) as u64;
    for tid in 1..=revisions {
        for oid in 0..objects {
            cache.insert(stream, Oid(oid), Tid(tid), Some(Tid(tid + 1)), &data);
            // The first lookup allocates the reference count of the data.
            cache.lookup(Oid(oid), Tid(tid + 1));
        }
    }
    let metrics = cache.metrics();
    (MEMORY.current_usage() - before, metrics.bytes, metrics.objects)
}

#[test]
fn a_full_cache_takes_no_more_than_it_may_and_says_what_it_takes() {
    for (object_bytes, revisions) in [(100, 1), (100, 5), (700, 2), (4096, 1), (100_000, 3)] {
        let (taken, counted, objects) = fill(object_bytes, revisions);
        let case = format!(
            "{object_bytes} bytes, {revisions} revisions: {taken} taken, {counted} counted, \
             {objects} objects"
        );
        assert!(taken <= BYTES_MAX, "{case}");
        assert!(counted <= BYTES_MAX, "{case}");
        // Most of the memory holds data.
        assert!(taken * 2 > BYTES_MAX, "{case}");
        assert!(counted * 10 > BYTES_MAX * 8, "{case}");
    }
}
