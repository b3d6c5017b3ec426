//! A repository of our own: transactions of any kind of storage, in chunks that are stored once.
//!
//! Key decision: chunks are cut where the content says so, at ends of transactions or of records,
//! and are named by the hash of what is in them. So what a pack did not touch is found again, and
//! is not stored again. A restore point is written last, and lists all that it needs; nothing is
//! ever changed.
//!
//! docs/format.md defines the objects.

mod archive;
mod backup;
mod blobs;
mod chunk_store;
mod continuity;
mod cutter;
mod filling;
mod hash;
mod items;
mod keyless;
mod known;
mod later_blobs;
mod moments;
mod opened;
mod point;
mod prune;
mod restore;
mod sealing;
mod transaction;
mod verify;
mod writer;

pub use archive::{Archiver, Step};
pub use backup::{Backup, BackupSummary, backup};
pub use keyless::{Listing, list};
pub use opened::{Repository, is_repository};
pub use point::{Point, points};
pub use prune::{KeepRules, Pruned, prune};
pub use restore::{BlobTarget, ReadBlob, RestoreTarget, Restored, restore, restored_point};
pub use sealing::Key;
pub use verify::{NewestPoint, Verified, find_damage, verify};
pub use writer::{BlobSource, Source};
