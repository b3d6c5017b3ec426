//! Packs a storage: writes a new file without unreachable revisions and objects, while commits go
//! on.
//!
//! A pack goes in steps, so that commits wait for the last one only:
//!
//! 1. [`Packer::begin`] finds what is in use ([`reachable`]) and copies it
//!    ([`packed_log`]) to `Data.fs.pack`, then what was committed meanwhile;
//! 2. [`Packer::catch_up`] does the latter again, until little is left;
//! 3. [`Packer::finish`], while nothing is appended, copies the rest, renames the copy
//!    over `Data.fs` and lets new readers use it. Readers of the old file continue with it.
//!
//! Invariants:
//! - until the rename the old file is the database and untouched; after it the new one is, and
//!   it is on stable storage before; there is no moment without a whole `Data.fs`;
//! - no object is dropped that a transaction refers to which is committed before the rename: when
//!   one that was garbage comes into use during the pack, the pack fails with
//!   [`PackOvertaken`](crate::FileStorageError::PackOvertaken). A transaction that was voted before
//!   and is committed after it is waited for if it has back pointers, as undos have. Others, as an
//!   undo with merged data, are not looked at: their reference to garbage leads nowhere then. The
//!   stock storage does the same.

mod boundary;
mod dangling;
mod lost;
mod output;
mod packed_log;
mod packer;
mod place;
mod reachable;
mod search;
mod sums;
mod watch;

pub use lost::DroppedRecord;
pub(crate) use packer::PackState;
pub use packer::{Pack, Packer};
