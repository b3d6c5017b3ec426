//! The blob directory of a storage.

use zodium_blobs::BlobDirectory;
use zodium_engine::Database;
use zodium_storage::StorageError;

/// The blob directory of a storage, or the error if there is none.
pub(crate) fn blobs_of(storage: &Database) -> Result<&BlobDirectory, StorageError> {
    storage.blobs().ok_or_else(|| {
        let what = format!("{}: served without a blob directory", storage.reader().name());
        StorageError::Unsupported { what }
    })
}
