//! Runs two threads side by side, for the models.

use std::sync::Arc;

/// Checks `write` beside `read` in every interleaving, and the result with `after`.
///
/// Each is run once as the model's first thread. loom explores other orders from the one in which
/// the first thread runs first, and from either one alone it misses some. Of the loads before a
/// store, it remembers only the last.
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
