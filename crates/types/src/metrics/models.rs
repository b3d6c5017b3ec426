//! Counters and histograms in the interleavings of a writer and a reader (`make loom`).

use std::sync::Arc;

use loom::thread;

use super::*;

/// Checks `write` beside `read`, and the result with `after`. The writer has the first thread: so
/// loom tries every load between any two stores.
fn beside<T>(write: fn(&T), read: fn(&T), after: fn(&T))
where
    T: Default + Send + Sync + 'static,
{
    loom::model(move || {
        let subject = Arc::new(T::default());
        let reader = thread::spawn({
            let subject = Arc::clone(&subject);
            move || read(&subject)
        });
        write(&subject);
        reader.join().unwrap();
        after(&subject);
    });
}

#[test]
fn no_count_is_lost_and_none_is_taken_back() {
    let write = |counter: &Counter| [2, 3].into_iter().for_each(|count| counter.add(count));
    let read = |counter: &Counter| {
        let (first, second) = (counter.value(), counter.value());
        assert!([0, 2, 5].contains(&first) && [0, 2, 5].contains(&second));
        assert!(first <= second, "{first}, then {second}");
    };
    beside(write, read, |counter| assert_eq!(counter.value(), 5));
}

#[test]
fn a_gauge_never_shows_more_than_there_was() {
    let write = |gauge: &Counter| {
        gauge.add(2);
        gauge.subtract(1);
        gauge.subtract(3);
    };
    let read = |gauge: &Counter| assert!(gauge.value() <= 2);
    beside(write, read, |gauge| assert_eq!(gauge.value(), 0));
}

#[test]
fn a_distribution_has_no_value_that_was_not_recorded() {
    let write = |sizes: &Sizes| [1, 2].into_iter().for_each(|size| sizes.record(size));
    let read = |sizes: &Sizes| {
        let seen = sizes.distribution();
        assert!(seen.buckets[0] <= 1 && seen.buckets[1] <= 1 && seen.count() <= 2);
        assert!([0.0, 1.0, 3.0].contains(&seen.sum), "{}", seen.sum);
    };
    beside(write, read, |sizes| {
        let all = sizes.distribution();
        assert_eq!((all.count(), all.sum), (2, 3.0));
    });
}
