//! Files that take the place of a data file: what a pack writes, and what a recovery does.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::{Disk, DiskFile, OpenMode};

use crate::FileStorageError;

/// Makes an empty file at `path`, for the eyes of those who may read the file at `model`.
pub(crate) fn create(
    disk: &dyn Disk,
    path: &Path,
    mode: OpenMode,
    model: &Path,
) -> Result<Arc<dyn DiskFile>, FileStorageError> {
    let created = disk.open(path, mode);
    let file = created.map_err(|error| FileStorageError::io(path, "create", error))?;
    let permitted = disk.copy_permissions(model, path);
    permitted.map_err(|error| FileStorageError::io(path, "set the permissions", error))?;
    Ok(file)
}
