//! Whether an answer that was computed a while ago may still say that it is current, from memory.
//!
//! Each commit has a number. The objects of the last ones are known with the number of their last
//! commit. An answer has the number of the last commit before it was read. For answers that are
//! older than what is known, the answer is no: then the object is read once more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zodium_types::Oid;

/// Objects that are known, at most. Reading an object takes far less time than so many commits.
const KNOWN_MAX: usize = 1 << 17;

/// The objects of the last commits, for a storage whose answers come from elsewhere.
#[derive(Debug, Default)]
pub struct Freshness {
    /// The number of the last commit. Stored with Release after what is known of it, loaded with
    /// Acquire by readers.
    last: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    commits: FxHashMap<Oid, u64>,
    /// In the order of their commits; an object may be there more than once.
    order: VecDeque<(Oid, u64)>,
    /// Answers with an earlier number are too old.
    oldest: u64,
}

impl Freshness {
    /// The number for an answer that is about to be read.
    pub fn now(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Whether no commit has written the object since `number`.
    pub fn is_current(&self, oid: Oid, number: u64) -> bool {
        let known = self.known.lock();
        number >= known.oldest && known.commits.get(&oid).is_none_or(|commit| *commit <= number)
    }

    /// Notes a commit that reads see by now.
    pub fn note_commit(&self, oids: &[Oid]) {
        let mut known = self.known.lock();
        let number = self.last.load(Ordering::Relaxed) + 1;
        for oid in oids {
            known.commits.insert(*oid, number);
            known.order.push_back((*oid, number));
        }
        while known.order.len() > KNOWN_MAX {
            let Some((oid, commit)) = known.order.pop_front() else { break };
            if known.commits.get(&oid) == Some(&commit) {
                known.commits.remove(&oid);
            }
            known.oldest = commit;
        }
        self.last.store(number, Ordering::Release);
    }

    /// Notes a pack: every answer from before it is old.
    pub fn note_pack(&self) {
        let mut known = self.known.lock();
        let number = self.last.load(Ordering::Relaxed) + 1;
        *known = Known { oldest: number, ..Known::default() };
        self.last.store(number, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_commits_make_old_answers_stale() {
        let freshness = Freshness::default();
        let first = freshness.now();
        freshness.note_commit(&[Oid(1)]);
        let second = freshness.now();
        assert!(!freshness.is_current(Oid(1), first));
        assert!(freshness.is_current(Oid(1), second) && freshness.is_current(Oid(2), first));
        let many: Vec<Oid> = (2..).map(Oid).take(KNOWN_MAX).collect();
        freshness.note_commit(&many);
        assert!(!freshness.is_current(Oid(1), first) && !freshness.is_current(Oid(0), first));
        assert!(freshness.is_current(Oid(1), second) && !freshness.is_current(Oid(2), second));
        assert_eq!(freshness.known.lock().commits.len(), KNOWN_MAX);
    }
}
