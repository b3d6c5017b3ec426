//! The log of a keyspace on disk: records that are appended, synced in groups, read at the start,
//! and replaced by fewer.
//!
//! Key decision: callers append records to a buffer under a lock of a few instructions, and one
//! thread writes and syncs what has gathered. So one sync serves all that came while the one before
//! took its time, and no caller ever waits for the disk here: it asks how far the log has got. This
//! crate does not know what a record means.

#![forbid(unsafe_code)]

mod error;
mod locked_file;
mod log;
mod reader;
mod record;
mod replacement;
mod shared;
mod writer;

pub use error::{CloseError, OpenError};
pub use log::{Log, Reached};
pub use reader::{Chunk, LogReader};
pub use replacement::Replacement;
pub use shared::Sync;
