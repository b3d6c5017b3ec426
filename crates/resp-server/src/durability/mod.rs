//! The keyspace on disk: its changes in a log, which is read at the start.
//!
//! Key decision: a hold's commands are one record, appended before its stripes are unlocked. So
//! records are in the order in which their changes took effect, and each is whole or absent. A
//! command is a function of the keyspace, of its arguments and of the time in the record. What
//! depends on chance, or on storages, is logged as its result.

mod compaction;
mod holding;
mod import;
mod items;
mod journal;
mod keeper;
mod key_log;
mod manifest;
mod opening;
mod origins;
mod recovery;
mod replay;
mod saving;
mod strings;

pub use import::{DumpedKey, ImportError, LeftOut};
pub use manifest::manifest_parts;
pub use opening::{KeeperOptions, LoadReport};

#[cfg(test)]
pub(crate) use compaction::compact;
pub(crate) use compaction::compact_if_due;
#[cfg(test)]
pub(crate) use items::write_command;
pub(crate) use items::{write_parked, write_time, write_unparked};
pub(crate) use journal::Instead;
pub(crate) use key_log::KeyLog;
pub(crate) use opening::open;
pub(crate) use origins::{are_to_the_same, objects_of, origin};
pub(crate) use saving::{bgrewriteaof, bgsave, lastsave, save};
