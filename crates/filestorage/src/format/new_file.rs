//! Creates files that replace a data file: the output of a pack or a recovery.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::{Disk, DiskFile, OpenMode};

use crate::FileStorageError;

/// Creates an empty file at `path`, which the readers of the file at `model` may read.
pub(crate) fn create_like(
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
