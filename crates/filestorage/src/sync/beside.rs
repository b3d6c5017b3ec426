//! Two threads beside each other, for the models.

use std::sync::Arc;

/// Checks `write` beside `read`, interleaving by interleaving, and what is left with `after`.
///
/// Each has the model's first thread once. loom looks for other orders from the one in which the
/// first thread runs first, and from either one alone it misses some: of the loads before a store
/// it remembers the last one only.
pub(crate) fn beside<T: Send + Sync + 'static>(
    new: fn() -> T,
    write: fn(&T),
    read: fn(&T),
    after: fn(&T),
) {
    for [first, second] in [[write, read], [read, write]] {
        loom::model(move || {
            let subject = Arc::new(new());
            let other = loom::thread::spawn({
                let subject = Arc::clone(&subject);
                move || second(&subject)
            });
            first(&subject);
            other.join().unwrap();
            after(&subject);
        });
    }
}
