//! Options to open a data file.

use std::path::PathBuf;

use crate::ChecksumMode;

/// Options to open a storage.
pub struct OpenOptions<'a> {
    /// The data file.
    pub path: PathBuf,
    /// Never write: take no lock, and ignore an unfinished tail instead of cutting it.
    pub read_only: bool,
    /// Create the file when it does not exist.
    pub create: bool,
    /// Replace an existing file with a new one. Its data are lost.
    pub truncate: bool,
    /// Refuse transactions that would make the file larger than this, in bytes.
    pub quota_bytes: Option<u64>,
    /// Memory for cached records, in bytes; 0 for none.
    pub cache_bytes: usize,
    /// Directory of the blobs, created when missing. `None`: transactions with blobs are refused.
    pub blob_directory: Option<PathBuf>,
    /// Whether to keep checksums beside the file.
    pub checksums: ChecksumMode,
    /// Gap between the largest oid of the file and the first new oid. A restarted server does not
    /// know which oids it handed out before, and reconnected clients may still hold them.
    pub new_oids_gap: u64,
    /// Called from time to time with bytes done and total bytes while an index is built.
    pub progress: &'a dyn Fn(u64, u64),
}

impl OpenOptions<'_> {
    /// Options for writing, which create a missing file. No cache, no blobs, no checksums, and no
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
