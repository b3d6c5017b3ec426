//! The data of a RESP server: databases of keys with values of six types, expiry, and watching.
//!
//! Key decision: keys are spread over [stripes](Stripes) by their hash, each behind a lock of its
//! own. A command locks the stripes of all its keys in ascending order, so that none sees a part
//! of another one, and none waits in a circle. A script locks more of them as it goes (`gate.rs`).
//! This crate knows neither sockets nor commands.

#![forbid(unsafe_code)]

mod ahead;
mod changed_keys;
mod clock;
mod due;
mod entry;
mod eviction;
mod few_scored;
mod gate;
mod guards;
mod hash;
mod hold;
mod journal;
mod keyspace;
mod kind;
mod list;
mod locked_key;
mod many_scored;
mod news;
mod ordered;
mod packed;
mod pending;
mod place;
mod random;
mod record;
mod score;
mod seen;
mod set;
mod short_words;
mod sizes;
mod sorted_set;
mod stream;
mod stripe;
mod stripes;
mod table;
mod tie;
mod unsynced;
mod uses;
mod value;
mod value_ref;
mod word_hasher;

pub use ahead::KEYS_AHEAD_MAX;
pub use changed_keys::KeyChanges;
pub use clock::{now, now_in_microseconds, set_time};
pub use entry::{Entry, EntryRef};
pub use eviction::{Eviction, First, NotEvicted};
pub use hash::Hash;
pub use hold::{Hold, Removed};
pub use journal::Journal;
pub use keyspace::{DATABASES, Keyspace, Logged, Logging, Totals, Visit};
pub use kind::{Kind, WrongType};
pub use list::List;
pub use locked_key::{ReadableKey, WritableKey};
pub use news::{News, Noted};
pub use pending::{Pending, PendingEntries};
pub use place::Place;
pub use random::random_below;
pub use record::{PACKED_BYTES_MAX, Record};
pub use score::Score;
pub use seen::Seen;
pub use set::Set;
pub use sorted_set::SortedSet;
pub use stream::{Consumer, Fields, Group, Sight, Stream, StreamId};
pub use stripe::Watcher;
pub use stripes::Stripes;
pub use tie::{Tie, WeakTie};
pub use uses::Uses;
pub use value::{Value, Word};
pub use value_ref::{Text, ValueRef};
pub use word_hasher::seed_key_hashes;
pub use zodium_readlocks::Reader;

use table::Table;
