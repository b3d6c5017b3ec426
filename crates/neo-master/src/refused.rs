//! Storages that are refused: they come again each second.
//!
//! The log has each once, and the status as long as it is so.

use std::collections::BTreeMap;

use zodium_neo::NodeId;

/// A storage that has not been refused for so many looks is forgotten.
const LOOKS_MAX: u32 = 3;
/// Most storages that are kept.
const STORAGES_MAX: usize = 100;

/// The storages that were refused lately.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    storages: BTreeMap<NodeId, Entry>,
    version: u64,
}

#[derive(Debug)]
struct Entry {
    reason: String,
    /// The number of looks since the last refusal.
    looks: u32,
    /// Whether it was refused before that.
    is_again: bool,
}

impl Refused {
    /// Notes a refusal. Gives whether the log is to have it.
    pub(crate) fn note(&mut self, storage: NodeId, reason: &str) -> bool {
        let is_full = self.storages.len() >= STORAGES_MAX;
        match self.storages.get_mut(&storage) {
            Some(entry) if entry.reason == reason => {
                (entry.looks, entry.is_again) = (0, true);
                return false;
            }
            None if is_full => return true,
            _ => {}
        }
        self.storages
            .insert(storage, Entry { reason: reason.to_owned(), looks: 0, is_again: false });
        self.version += 1;
        true
    }

    /// Whether a storage was refused lately: that it comes is no news.
    pub(crate) fn has(&self, storage: NodeId) -> bool {
        self.storages.contains_key(&storage)
    }

    /// Whether a storage was refused more than once: that it goes is no news.
    pub(crate) fn has_again(&self, storage: NodeId) -> bool {
        self.storages.get(&storage).is_some_and(|entry| entry.is_again)
    }

    /// Forgets storages that have not come again.
    pub(crate) fn look(&mut self) {
        let before = self.storages.len();
        self.storages.retain(|_, entry| {
            entry.looks += 1;
            entry.looks < LOOKS_MAX
        });
        self.version += u64::from(self.storages.len() != before);
    }

    /// Another number after a change of [`Refused::sentences`].
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Which storages are refused, and why.
    pub(crate) fn sentences(&self) -> impl Iterator<Item = String> {
        self.storages.iter().map(|(storage, Entry { reason, .. })| {
            format!(
                "{storage} is refused each time that it comes: {reason}. Look at its database: it \
                 may be lost, or that of another storage or cluster"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_news_once_until_the_storage_has_not_come_for_a_while() {
        let (mut refused, storage) = (Refused::default(), NodeId::new(1).unwrap());
        assert!(refused.note(storage, "why") && !refused.has_again(storage));
        let version = refused.version();
        for _ in 0..10 {
            refused.look();
            assert!(!refused.note(storage, "why") && refused.has_again(storage));
        }
        assert_eq!(refused.version(), version);
        assert!(refused.note(storage, "another reason"));
        for is_left in [true, true, false] {
            refused.look();
            assert_eq!(refused.has(storage), is_left);
        }
        assert_ne!(refused.version(), version);
        assert_eq!(refused.sentences().count(), 0);
        assert!(refused.note(storage, "why"));
    }
}
