//! Creates the file of a database.

use std::path::Path;

use zodium_disk::{Disk, RealDisk};

use crate::SqlError;
use crate::place::Place;

/// As [`ensure_file`]. Databases on a server are created by its operator.
pub(crate) fn ensure_database(place: &Place, creates: bool) -> Result<bool, SqlError> {
    match place.file() {
        Some(path) => ensure_file(path, creates),
        None => Ok(true),
    }
}

/// Creates an empty file where there is none, so that it can be locked before it is written;
/// `false` if there is none, and none is to be created.
///
/// A log that a removed database has left behind does no harm: SQLite deletes the log of an empty
/// file.
fn ensure_file(path: &Path, creates: bool) -> Result<bool, SqlError> {
    let failed =
        |operation| move |source| SqlError::Io { path: path.to_owned(), operation, source };
    if RealDisk.exists(path).map_err(failed("look for the file"))? {
        return Ok(true);
    }
    if !creates {
        return Ok(false);
    }
    let created = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
    created.map_err(failed("create the file"))?;
    RealDisk.sync_folder_of(path).map_err(failed("sync the folder of the file"))?;
    Ok(true)
}
