//! What a client wants to be told of, for a cache of its own.

use std::collections::BTreeSet;

use zodium_keyspace::Word;

/// How a client is told of changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracked {
    /// The client that gets the messages; 0 for this one.
    pub(crate) redirect: u64,
    pub(crate) reads: Reads,
    /// Whether it is not told of its own changes.
    pub(crate) skips_own: bool,
    /// What the names of keys begin with, if it is told of changes of all such keys.
    pub(crate) prefixes: BTreeSet<Word>,
    /// Whether the client that gets the messages has gone.
    pub(crate) is_broken: bool,
}

/// Which keys a client is told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Those that it has read.
    #[default]
    All,
    /// Those that it has read after `CLIENT CACHING YES`.
    OptIn,
    /// Those that it has read, but for reads after `CLIENT CACHING NO`.
    OptOut,
    /// Those with one of its prefixes, read or not.
    Broadcast,
}
