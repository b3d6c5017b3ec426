//! How to open a data file.

use std::path::PathBuf;

use crate::ChecksumMode;

/// How to open a storage.
pub struct OpenOptions<'a> {
    /// The data file.
    pub path: PathBuf,
    /// Never write: no lock is taken, an unfinished tail is ignored instead of cut.
    pub read_only: bool,
    /// Make the file when it does not exist.
    pub create: bool,
    /// Begin a new file in place of one that exists, whose data are gone.
    pub truncate: bool,
    /// Refuse transactions with which the file would be larger than this, in bytes.
    pub quota_bytes: Option<u64>,
    /// Memory for cached records, in bytes; 0 for none.
    pub cache_bytes: usize,
    /// Where blobs are; made when it does not exist. `None`: blobs are refused.
    pub blob_directory: Option<PathBuf>,
    /// Whether to keep checksums beside the file.
    pub checksums: ChecksumMode,
    /// New oids begin so far above the largest of the file. A server that was restarted does not
    /// know which it gave before: clients that have reconnected may still hold them.
    pub new_oids_gap: u64,
    /// Called now and then with bytes done and bytes in all while an index is built.
    pub progress: &'a dyn Fn(u64, u64),
}

impl OpenOptions<'_> {
    /// For writing; the file is made when it does not exist. No cache, no blobs, no checksums, no
    /// gap before new oids.
    pub fn new(path: impl Into<PathBuf>) -> OpenOptions<'static> {
        OpenOptions {
            path: path.into(),
            read_only: false,
            create: true,
            truncate: false,
            quota_bytes: None,
            cache_bytes: 0,
            blob_directory: None,
            checksums: ChecksumMode::Off,
            new_oids_gap: 0,
            progress: &|_, _| (),
        }
    }
}
