//! Copies the end of a file, which is about to be cut off.
//!
//! The copy has a temporary name until it is whole and on stable storage, and then becomes a `.trN`
//! file. If that fails, as on a full disk, no part of it stays, however often it is tried.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Disk, DiskFile, OpenMode, is_full, with_suffix};

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;
/// Suffix of the unfinished copy. After a crash, the next copy overwrites it.
const TEMPORARY_SUFFIX: &str = ".tr_tmp";

/// Why the end of a file could not be copied.
#[derive(Debug)]
pub struct NotKept {
    /// The affected file.
    pub path: PathBuf,
    /// The operation: `create`, `read`, `write`...
    pub operation: &'static str,
    /// The error of the operating system.
    pub source: io::Error,
    /// Path of the intended copy.
    pub kept: PathBuf,
}

impl NotKept {
    /// Whether there was no space for the copy.
    #[must_use]
    pub fn is_full(&self) -> bool {
        is_full(&self.source)
    }
}

/// Copies the bytes of a file from `start` to `end` to the first free `.trN` file, and returns its
/// path.
///
/// # Errors
/// The copy is not on stable storage under its name: the bytes must not be cut off.
pub fn keep_end(
    disk: &dyn Disk,
    path: &Path,
    file: &dyn DiskFile,
    start: u64,
    end: u64,
) -> Result<PathBuf, NotKept> {
    let temporary = with_suffix(path, TEMPORARY_SUFFIX);
    let kept = free_name(disk, path)?;
    let failed = |path: &Path, operation| {
        let (path, kept) = (path.to_owned(), kept.clone());
        move |source| NotKept { path, operation, source, kept }
    };
    let copy = || {
        let created = disk.open(&temporary, OpenMode::Truncate);
        let copy = created.map_err(failed(&temporary, "create"))?;
        let permitted = disk.copy_permissions(path, &temporary);
        permitted.map_err(failed(&temporary, "set the permissions"))?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut position = start;
        while position < end {
            let count = (end - position).min(COPY_BYTES as u64) as usize;
            let chunk = &mut buffer[..count];
            file.read_exact_at(chunk, position).map_err(failed(path, "read"))?;
            let written = copy.write_all_at(chunk, position - start);
            written.map_err(failed(&temporary, "write"))?;
            position += count as u64;
        }
        copy.sync().map_err(failed(&temporary, "write"))?;
        disk.rename(&temporary, &kept).map_err(failed(&kept, "rename to"))
    };
    if let Err(error) = copy() {
        for copy in [&temporary, &kept] {
            if let Err(error) = disk.remove(copy) {
                tracing::warn!(file = %copy.display(), %error, "cannot remove an unfinished copy");
            }
        }
        return Err(error);
    }
    Ok(kept)
}

fn free_name(disk: &dyn Disk, path: &Path) -> Result<PathBuf, NotKept> {
    let mut number = 0;
    loop {
        let candidate = with_suffix(path, &format!(".tr{number}"));
        match disk.exists(&candidate) {
            Ok(false) => return Ok(candidate),
            Ok(true) => number += 1,
            Err(source) => {
                let kept = candidate.clone();
                return Err(NotKept { path: candidate, operation: "look for", source, kept });
            }
        }
    }
}
