//! A data file that is empty or missing, beside the index or the checksums of one with objects.
//!
//! A copy to a full disk leaves such a file, and so does a disk that is not mounted. An operator
//! may also have removed the data file only, to begin anew. So a new file is begun, as ZODB does,
//! but the log tells what was there, and the files that show it are kept.

use std::path::Path;

use tracing::error;
use zodium_disk::{Disk, FileStream, OpenMode, with_suffix};

use super::index_file;
use crate::format::MAGIC_BYTES;
use crate::{FileStorageError, checksums};

/// Suffix of files that belong to a data file which is gone.
const LOST_SUFFIX: &str = ".lost";

/// Called before an empty file begins: if there was one with objects, logs an error and renames
/// what is left of it.
pub(crate) fn report(disk: &dyn Disk, path: &Path) -> Result<(), FileStorageError> {
    let index = describe_index(disk, path).filter(|(_, bytes)| *bytes > MAGIC_BYTES);
    if index.is_none() && !checksums::are_of_transactions(disk, path) {
        return Ok(());
    }
    for suffix in [".index", checksums::SUFFIX] {
        let left = with_suffix(path, suffix);
        let kept = with_suffix(&left, LOST_SUFFIX);
        match disk.rename(&left, &kept) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(FileStorageError::io(&kept, "rename to", error));
            }
            _ => {}
        }
    }
    let (objects, bytes) = index.unzip();
    error!(file = %path.display(), objects, bytes,
        "the data file is missing or empty, though the files beside it are of one with objects: a \
         new database begins. If that is not wanted, stop the server, and put the data file or a \
         backup in its place. The index and the checksums were renamed to .lost");
    Ok(())
}

/// The number of objects in the index, and the length of the file that it covers.
fn describe_index(disk: &dyn Disk, path: &Path) -> Option<(u64, u64)> {
    let file = disk.open(&with_suffix(path, ".index"), OpenMode::Read).ok()?;
    let mut objects = 0;
    let end = index_file::read(FileStream::new(file.as_ref()), |_, _| objects += 1).ok()?;
    Some((objects, end))
}
