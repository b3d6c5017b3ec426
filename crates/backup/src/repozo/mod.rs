//! Folders of ZODB's repozo: full copies of a data file, what was appended to it since, indexes,
//! and a list of positions and sums for each full copy.
//!
//! Either tool goes on with what the other wrote. Unlike repozo, what is there is verified while it
//! is restored, the end of a backup is always the end of a transaction, and two backups at a time
//! are refused.

mod backup;
mod chain;
mod delta;
mod name;
mod restore;

pub use backup::{Done, RepozoOptions, Source, backup};
pub use delta::read_delta;
pub use name::Date;
pub use restore::{Restored, is_repozo, restore, restore_to, verify};
