//! Ties: keys that go together with what they were computed from.
//!
//! Key decision: a tie is cut without the lock of any stripe. A cut gets a number, its moment, and
//! holds that begin later see none of its keys; those that have begun see all of them. So the
//! thread that cuts waits for no command, and no command sees a key go while it is executed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The moment of a tie that was not cut.
const UNCUT: u64 = 0;

/// Ties keys to something that can change. All clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Tie(Arc<Knot>);

/// A tie that does not know whether any key has it still.
#[derive(Clone, Debug, Default)]
pub struct WeakTie(Weak<Knot>);

/// What the clones of a tie share.
#[derive(Debug, Default)]
struct Knot {
    cut_at: AtomicU64,
    /// What the tie is to, in the words of its maker.
    origin: Box<[u8]>,
}

/// The moments at which ties were cut.
#[derive(Debug, Default)]
pub(crate) struct Moments {
    /// The last one. Release after the ties that are cut, Acquire when a hold begins.
    last: AtomicU64,
    /// Held while ties are cut, so that moments follow each other.
    cutting: Mutex<()>,
}

impl Tie {
    /// A tie whose maker can tell by `origin` what it is to.
    #[must_use]
    pub fn new(origin: &[u8]) -> Tie {
        Tie(Arc::new(Knot { cut_at: AtomicU64::new(UNCUT), origin: origin.into() }))
    }

    /// What it is to, in the words of its maker.
    #[must_use]
    pub fn origin(&self) -> &[u8] {
        &self.0.origin
    }

    /// The same tie, for an index of ties.
    #[must_use]
    pub fn downgrade(&self) -> WeakTie {
        WeakTie(Arc::downgrade(&self.0))
    }

    /// Whether it was cut, also after a hold began that sees its key still.
    #[must_use]
    pub fn was_cut(&self) -> bool {
        self.is_cut(u64::MAX)
    }

    /// Whether it was cut at a moment or before.
    pub(crate) fn is_cut(&self, moment: u64) -> bool {
        // Ordered by the moment, which the caller has loaded.
        let cut_at = self.0.cut_at.load(Ordering::Relaxed);
        cut_at != UNCUT && cut_at <= moment
    }
}

impl WeakTie {
    /// The tie; `None` if no key has it any more.
    #[must_use]
    pub fn upgrade(&self) -> Option<Tie> {
        self.0.upgrade().map(Tie)
    }

    /// Whether no key has it any more.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Moments {
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Cuts ties, all at one moment.
    pub(crate) fn cut(&self, ties: &[Tie]) {
        let _cutting = self.cutting.lock();
        let moment = self.last.load(Ordering::Relaxed) + 1;
        for tie in ties {
            // A tie that was cut before stays cut at its moment.
            let cut_at = &tie.0.cut_at;
            let _ = cut_at.compare_exchange(UNCUT, moment, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.last.store(moment, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Keyspace, Value};

    fn text() -> Entry {
        Entry::new(Value::String(bytes::Bytes::from_static(b"value")))
    }

    #[test]
    fn keys_of_one_cut_go_at_once_and_for_later_holds_only() {
        let keyspace = Keyspace::default();
        let both = keyspace.stripes([&b"one"[..], b"two"]);
        let tie = Tie::default();
        let mut hold = keyspace.lock(both, 1);
        for key in [&b"one"[..], b"two"] {
            hold.put(key, text());
            hold.tie(key, vec![tie.clone()]);
        }
        keyspace.cut(std::slice::from_ref(&tie));
        assert!(hold.has(b"one"), "a hold that has begun sees no change");
        hold.remove_expired(b"two");
        assert!(hold.has(b"two"));
        drop(hold);
        let mut hold = keyspace.lock(both, 1);
        assert!(!hold.has(b"one") && !hold.has(b"two"));
        assert_eq!(hold.iter().count(), 0);
        // What is set now has no tie.
        hold.put(b"one", text());
        assert!(hold.has(b"one"));
        hold.remove_expired(b"two");
        assert_eq!(hold.news.expired.len(), 2, "the key that was replaced, and the one removed");
        assert_eq!(hold.len(), 1);
    }

    #[test]
    fn a_key_that_is_replaced_or_removed_has_lost_its_tie() {
        let keyspace = Keyspace::default();
        let tie = Tie::default();
        let weak = tie.downgrade();
        let mut hold = keyspace.lock(keyspace.stripe(b"key"), 1);
        hold.put(b"key", text());
        hold.tie(b"key", vec![tie]);
        assert!(!weak.is_dropped());
        hold.put(b"key", text());
        assert!(weak.is_dropped());
        let tie = Tie::default();
        hold.tie(b"key", vec![tie.clone()]);
        hold.take(b"key");
        hold.put(b"key", text());
        drop(hold);
        keyspace.cut(&[tie]);
        assert!(keyspace.lock(keyspace.stripe(b"key"), 1).has(b"key"));
    }

    #[test]
    fn a_watched_key_that_goes_with_its_tie_has_changed() {
        let keyspace = Keyspace::default();
        let (tie, watcher) = (Tie::default(), crate::Watcher::default());
        let stripe = keyspace.stripe(b"key");
        let mut hold = keyspace.lock(stripe, 1);
        hold.put(b"key", text());
        hold.tie(b"key", vec![tie.clone()]);
        hold.watch(b"key", &watcher);
        drop(hold);
        keyspace.cut(&[tie]);
        keyspace.lock(stripe, 1).remove_expired(b"key");
        assert!(watcher.is_changed());
    }
}
