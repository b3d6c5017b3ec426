//! The blob directory of a storage.

use zodium_engine::Storage;
use zodium_filestorage::{BlobDirectory, StorageError};

/// The blob directory of a storage, or the error if there is none.
pub(crate) fn blobs_of(storage: &Storage) -> Result<&BlobDirectory, StorageError> {
    let file = storage.file();
    file.blobs().ok_or_else(|| StorageError::BlobsUnsupported { path: file.path().to_owned() })
}
