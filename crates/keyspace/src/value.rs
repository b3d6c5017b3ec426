//! The values that a key can have.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use bytes::Bytes;

use crate::word_hasher::WordHasher;
use crate::{Hash, List, Set, SortedSet, Stream};

/// A key, a member, a field, or an element of a list.
pub type Word = Box<[u8]>;

/// The value of a key. A stream is boxed, so that it is small. Other collections than
/// streams are never empty: a key without elements is removed.
#[derive(Clone, Debug)]
pub enum Value {
    /// Bytes.
    String(Bytes),
    /// Elements in order.
    List(List),
    /// Values by field.
    Hash(Hash),
    /// Members.
    Set(Set),
    /// Members with scores, in order.
    SortedSet(SortedSet),
    /// Entries in the order of their ids. It may be empty.
    Stream(Box<Stream>),
}

/// Hashes what is in collections. Its seed is secret, or clients could choose members that meet.
static HASHER: LazyLock<WordHasher> = LazyLock::new(WordHasher::shared);

pub(crate) fn hash_of(word: &[u8]) -> u64 {
    HASHER.hash_one(word)
}
