//! What keys have.

use std::collections::{BTreeSet, VecDeque};

/// A database and a key.
pub(super) type Place = (usize, Vec<u8>);

pub(super) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";

/// The number before the dash of an id, and the field and value of an entry.
pub(super) type Entry = (u64, Vec<u8>, Vec<u8>);

/// Scores and members.
pub(super) type Scored = BTreeSet<(i64, Vec<u8>)>;

#[derive(Clone, Debug)]
pub(super) enum Content {
    String(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    SortedSet(Scored),
    Stream(Vec<Entry>),
}

/// The types that commands wait for, and are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    String,
    List,
    SortedSet,
    Stream,
}

/// What a key has.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) content: Content,
    /// In milliseconds since 1970.
    pub(super) expires_at: Option<u64>,
    /// The objects that it is tied to.
    pub(super) ties: BTreeSet<u64>,
}

impl Content {
    pub(super) fn kind(&self) -> Type {
        match self {
            Content::String(_) => Type::String,
            Content::List(_) => Type::List,
            Content::SortedSet(_) => Type::SortedSet,
            Content::Stream(_) => Type::Stream,
        }
    }

    /// Nothing of a type.
    pub(super) fn new(kind: Type) -> Content {
        match kind {
            Type::String => Content::String(Vec::new()),
            Type::List => Content::List(VecDeque::new()),
            Type::SortedSet => Content::SortedSet(BTreeSet::new()),
            Type::Stream => Content::Stream(Vec::new()),
        }
    }

    /// Whether the key goes.
    pub(super) fn is_void(&self) -> bool {
        match self {
            Content::String(_) | Content::Stream(_) => false,
            Content::List(list) => list.is_empty(),
            Content::SortedSet(set) => set.is_empty(),
        }
    }
}

impl Type {
    pub(super) fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::List => "list",
            Type::SortedSet => "zset",
            Type::Stream => "stream",
        }
    }
}

impl Kept {
    pub(super) fn new(content: Content) -> Kept {
        Kept { content, expires_at: None, ties: BTreeSet::new() }
    }
}
