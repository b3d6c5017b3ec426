//! Keeps up what lies beside the data file.

mod side_files;
mod tid_walk;

pub use side_files::ScrubPlace;
pub(crate) use side_files::{SideFiles, close_checksums, sync_checksums, verify_tail};
