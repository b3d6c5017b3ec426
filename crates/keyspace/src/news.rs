//! What a hold notes of its changes for others: clients that wait, listen, or keep copies.

use crate::{Removed, Word};

/// Things that are noted if they are asked for.
pub struct Noted<T> {
    /// Whether they are noted.
    pub is_noted: bool,
    items: Vec<T>,
}

/// What others are to know of the changes of a hold.
#[derive(Default)]
pub struct News {
    /// Keys that were not there, and have a list or a sorted set now; streams with a new entry.
    pub filled: Noted<Removed>,
    /// Keys that were not there, and are now.
    pub new: Noted<Removed>,
    /// The client that changes keys, as the caller numbers clients; 0 for none.
    pub changer: u64,
    /// Keys that were changed.
    pub altered: Noted<Word>,
    /// Number of these that their readers were told of.
    told: usize,
    /// Whether whole databases were changed, if changes are noted.
    is_all_altered: bool,
    /// Keys that were removed because their time is past, or a tie of theirs was cut.
    pub expired: Vec<Removed>,
    /// Number of these that are announced.
    announced: usize,
}

impl<T> Noted<T> {
    /// Takes what was noted.
    pub fn take(&mut self) -> Vec<T> {
        std::mem::take(&mut self.items)
    }

    /// Adds items, whether they are asked for or not.
    pub fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        self.items.extend(items);
    }

    pub(crate) fn note(&mut self, item: impl FnOnce() -> T) {
        if self.is_noted {
            self.items.push(item());
        }
    }
}

impl<T> Default for Noted<T> {
    fn default() -> Noted<T> {
        Noted { is_noted: false, items: Vec::new() }
    }
}

impl News {
    /// The keys that were changed since this was called last, which the caller tells their readers
    /// of now; `None` if whole databases were.
    pub fn tell_altered(&mut self) -> Option<&[Word]> {
        if std::mem::take(&mut self.is_all_altered) {
            self.take_altered();
            return None;
        }
        let from = std::mem::replace(&mut self.told, self.altered.items.len());
        Some(self.altered.items.get(from..).unwrap_or_default())
    }

    /// Takes all keys that were changed.
    pub fn take_altered(&mut self) -> Vec<Word> {
        self.told = 0;
        self.altered.take()
    }

    /// Takes the removed keys that are not announced.
    pub fn take_expired(&mut self) -> Vec<Removed> {
        let announced = std::mem::take(&mut self.announced);
        let mut expired = std::mem::take(&mut self.expired);
        expired.drain(..announced.min(expired.len()));
        expired
    }

    /// The removed keys that are not announced, which the caller announces now.
    pub fn announce_expired(&mut self) -> &[Removed] {
        let from = std::mem::replace(&mut self.announced, self.expired.len());
        self.expired.get(from..).unwrap_or_default()
    }

    pub(crate) fn note_all_altered(&mut self) {
        self.is_all_altered = self.altered.is_noted;
    }
}
