//! Opens a data file: takes its locks, finds its committed bytes, loads or rebuilds the index, and
//! sets an unfinished end aside.

mod index_file;
mod index_line;
mod index_snapshot;
mod locking;
mod lost_file;
mod options;
mod recovery;
mod set_aside;
mod start_checksums;
mod torn;

pub(crate) use index_file::{IndexFileError, read as read_index_file};
pub(crate) use index_snapshot::{save as save_index, write_to as write_index_to};
pub(crate) use locking::{NameLocks, lock_data, open_data_file, resolve};
pub use options::OpenOptions;
pub(crate) use recovery::{Recovered, recover};
