//! The values that a key can have.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::LazyLock;

use bytes::Bytes;

use crate::{SortedSet, Stream, Table};

/// Fewer elements are removed one by one: that takes less time than having another thread do it.
pub(crate) const CUT_LEAST: usize = 512;

/// A key, a member, a field, or an element of a list.
pub type Word = Box<[u8]>;

/// The value of a key. Others than bytes are boxed, so that it is small. Other collections than
/// streams are never empty: a key without elements is removed.
#[derive(Clone, Debug)]
pub enum Value {
    /// Bytes.
    String(Bytes),
    /// Elements in order.
    List(Box<List>),
    /// Values by field.
    Hash(Box<Hash>),
    /// Members.
    Set(Box<Set>),
    /// Members with scores, in order.
    SortedSet(Box<SortedSet>),
    /// Entries in the order of their ids. It may be empty.
    Stream(Box<Stream>),
}

/// Elements in order.
#[derive(Clone, Debug, Default)]
pub struct List(pub VecDeque<Word>);

/// Values by field.
#[derive(Clone, Debug, Default)]
pub struct Hash(Table<Word, Word>);

/// Members.
#[derive(Clone, Debug, Default)]
pub struct Set(Table<Word, ()>);

/// Hashes what is in collections. Its seed is secret, or clients could choose members that meet.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

pub(crate) fn hash_of(word: &[u8]) -> u64 {
    HASHER.hash_one(word)
}

impl List {
    /// Removes all elements but those of some places. If they are many they are returned, for
    /// [`Hold::discard`](crate::Hold::discard).
    #[must_use]
    pub fn keep_only(&mut self, kept: Range<usize>) -> Option<List> {
        if self.0.len() - kept.len() < CUT_LEAST {
            self.0.truncate(kept.end);
            self.0.drain(..kept.start);
            return None;
        }
        let mut cut = self.0.split_off(kept.end);
        cut.extend(self.0.drain(..kept.start));
        Some(List(cut))
    }
}

impl Hash {
    /// The number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<&Word> {
        self.0.get(hash_of(field), field)
    }

    /// Sets a field; whether it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let hash = hash_of(field);
        if let Some(there) = self.0.get_mut(hash, field) {
            *there = value.into();
            return false;
        }
        self.0.insert(hash, field.into(), value.into());
        true
    }

    /// Removes a field, and returns its value.
    pub fn remove(&mut self, field: &[u8]) -> Option<Word> {
        self.0.remove(hash_of(field), field).map(|(_, value)| value)
    }

    /// All fields with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&Word, &Word)> {
        self.0.iter()
    }

    /// A field by chance.
    #[must_use]
    pub fn random(&self) -> Option<(&Word, &Word)> {
        self.0.random()
    }

    /// The table of fields.
    #[must_use]
    pub fn table(&self) -> &Table<Word, Word> {
        &self.0
    }
}

impl Set {
    /// The number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is a member.
    #[must_use]
    pub fn contains(&self, member: &[u8]) -> bool {
        self.0.get(hash_of(member), member).is_some()
    }

    /// Adds a member; whether it is new.
    pub fn add(&mut self, member: &[u8]) -> bool {
        let hash = hash_of(member);
        if self.0.get(hash, member).is_some() {
            return false;
        }
        self.0.insert(hash, member.into(), ());
        true
    }

    /// Removes a member; whether it was one.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        self.0.remove(hash_of(member), member).is_some()
    }

    /// All members.
    pub fn iter(&self) -> impl Iterator<Item = &Word> {
        self.0.iter().map(|(member, ())| member)
    }

    /// A member by chance.
    #[must_use]
    pub fn random(&self) -> Option<&Word> {
        self.0.random().map(|(member, ())| member)
    }

    /// The table of members.
    #[must_use]
    pub fn table(&self) -> &Table<Word, ()> {
        &self.0
    }
}

impl<'a> FromIterator<&'a [u8]> for Set {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(members: I) -> Set {
        let mut set = Set::default();
        for member in members {
            set.add(member);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_some_places_and_gives_the_others_if_they_are_many() {
        let number = |word: &Word| u16::from_be_bytes((**word).try_into().unwrap());
        for (length, kept) in [
            (10, 3..7),
            (10, 0..0),
            (1000, 0..490),
            (1000, 600..1000),
            (1000, 400..410),
            (1000, 5..495),
            (1000, 0..0),
        ] {
            let numbers = 0..length;
            let mut list = List(numbers.map(|number: u16| number.to_be_bytes().into()).collect());
            let cut = list.keep_only(kept.clone());
            let (start, end) = (kept.start as u16, kept.end as u16);
            assert!(list.0.iter().map(number).eq(start..end));
            assert_eq!(cut.is_some(), usize::from(length) - kept.len() >= CUT_LEAST);
            if let Some(cut) = cut {
                assert!(cut.0.iter().map(number).eq((end..length).chain(0..start)));
            }
        }
    }
}
