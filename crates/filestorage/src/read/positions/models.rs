//! Models of the index: interleavings of its publisher and a reader (`make loom`).

use super::*;
use crate::sync::beside;

/// Oids of one page, and an oid that never has a page.
const FIRST: Oid = Oid(0);
const SECOND: Oid = Oid(1);
const SPARSE: Oid = Oid(DENSE_OIDS);

/// An index whose first object is in the skip list, and whose credit pays for one page.
fn with_a_sparse_object() -> Positions {
    let positions = Positions::new();
    positions.tally.credit_bytes.store(0, Ordering::Relaxed);
    positions.publish(FIRST, 10);
    positions.tally.credit_bytes.store(PAGE_BYTES + BLOCK_BYTES, Ordering::Relaxed);
    assert!(positions.page(FIRST.0).is_none() && !positions.sparse.is_empty());
    positions
}

fn publish_second(positions: &Positions) {
    positions.publish(SECOND, 20);
}

#[test]
fn an_object_that_moves_into_a_page_is_never_missed() {
    let read = |positions: &Positions| assert_eq!(positions.position(FIRST), Some(10));
    beside(with_a_sparse_object, publish_second, read, |positions| {
        assert!(positions.page(FIRST.0).is_some() && positions.sparse.is_empty());
        assert_eq!(positions.position(FIRST), Some(10));
        assert_eq!(positions.position(SECOND), Some(20));
    });
}

#[test]
fn a_position_never_goes_back_while_it_moves_and_changes() {
    let write = |positions: &Positions| {
        positions.publish(FIRST, 20);
        positions.publish(FIRST, 30);
    };
    let read = |positions: &Positions| {
        let (first, second) = (positions.position(FIRST), positions.position(FIRST));
        assert!(first.is_some() && first <= second, "{first:?}, then {second:?}");
    };
    beside(with_a_sparse_object, write, read, |positions| {
        assert_eq!(positions.position(FIRST), Some(30));
    });
}

/// An index, and a record at a position.
struct Published {
    positions: Positions,
    record: AtomicU64,
}

fn publish(published: &Published, oid: Oid) {
    published.record.store(1, Ordering::Relaxed);
    published.positions.publish(oid, 10);
}

/// A reader of the position sees the record written before it.
fn read(published: &Published, oid: Oid) {
    if published.positions.position(oid).is_some() {
        assert_eq!(published.record.load(Ordering::Relaxed), 1);
    }
}

fn unpublished() -> Published {
    Published { positions: Positions::new(), record: AtomicU64::new(0) }
}

#[test]
fn a_position_in_a_new_page_publishes_its_record() {
    beside(unpublished, |it| publish(it, FIRST), |it| read(it, FIRST), |_| ());
}

#[test]
fn a_position_in_an_old_page_publishes_its_record() {
    let with_page = || {
        let published = unpublished();
        publish_second(&published.positions);
        published
    };
    beside(with_page, |it| publish(it, FIRST), |it| read(it, FIRST), |_| ());
}

#[test]
fn a_position_in_the_skip_list_publishes_its_record() {
    beside(unpublished, |it| publish(it, SPARSE), |it| read(it, SPARSE), |_| ());
}

#[test]
fn a_new_position_in_the_skip_list_publishes_its_record() {
    let with_object = || {
        let published = unpublished();
        published.positions.publish(SPARSE, 5);
        published
    };
    let read = |it: &Published| {
        if it.positions.position(SPARSE) == Some(10) {
            assert_eq!(it.record.load(Ordering::Relaxed), 1);
        }
    };
    beside(with_object, |it| publish(it, SPARSE), read, |_| ());
}

#[test]
fn iteration_gives_an_object_that_moves_once() {
    const ALL: [(Oid, u64); 2] = [(FIRST, 10), (SECOND, 20)];
    let read = |positions: &Positions| {
        let given: Vec<_> = positions.iter().collect();
        assert!(given == ALL[..1] || given == ALL, "{given:?}");
    };
    beside(with_a_sparse_object, publish_second, read, |positions| {
        assert_eq!(positions.iter().collect::<Vec<_>>(), ALL);
    });
}

#[test]
fn the_count_never_runs_ahead_of_the_objects() {
    let write = |positions: &Positions| {
        positions.publish(FIRST, 10);
        positions.publish(SPARSE, 20);
    };
    let read = |positions: &Positions| {
        let count = positions.len() as usize;
        for oid in &[FIRST, SPARSE][..count] {
            assert!(positions.position(*oid).is_some(), "{oid:?} is counted and not there");
        }
    };
    beside(Positions::new, write, read, |positions| assert_eq!(positions.len(), 2));
}

#[test]
fn the_largest_oid_is_that_of_the_counted_objects() {
    let write = |positions: &Positions| {
        positions.publish(FIRST, 10);
        positions.publish(SPARSE, 20);
    };
    let read = |positions: &Positions| {
        let count = positions.len() as usize;
        // The oid is read later than the count, when there may be more objects.
        assert!(positions.largest_oid() >= [None, Some(FIRST), Some(SPARSE)][count]);
    };
    beside(Positions::new, write, read, |positions| {
        assert_eq!(positions.largest_oid(), Some(SPARSE));
    });
}
