//! A repository of our own: transactions of any kind of storage, in chunks that are stored once.
//!
//! Key decision: chunks are cut where the content says so, at ends of transactions, and are named
//! by the hash of what is in them. So what a pack did not touch is found again, and is not stored
//! again. A restore point is written last, and lists all that it needs; nothing is ever changed.
//!
//! docs/format.md defines the files.

mod backup;
mod blob_files;
mod chunk_store;
mod cutter;
mod items;
mod point;
mod prune;
mod restore;
mod verify;

pub use backup::{Backup, BackupSummary, BlobSource, backup};
pub use point::{Point, is_repository, points};
pub use prune::{KeepRules, Pruned, prune};
pub use restore::{BlobTarget, ReadBlob, RestoreTarget, restore};
pub use verify::{Verified, verify};
