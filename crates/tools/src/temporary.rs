//! Files for what a command holds only while it runs.

use std::fs::File;
use std::io;

/// A file without a name in the system's folder for temporary files, `/tmp` or `$TMPDIR`.
///
/// # Errors
/// It cannot be made there: the message names the folder.
pub fn temporary_file() -> io::Result<File> {
    tempfile::tempfile().map_err(|error| {
        let folder = std::env::temp_dir();
        let message = format!(
            "cannot make a temporary file in {}: {error}; name another folder in TMPDIR",
            folder.display()
        );
        io::Error::new(error.kind(), message)
    })
}
