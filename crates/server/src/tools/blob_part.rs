//! A blob directory that is being restored.
//!
//! Key decision: a locked file in it says so. What a killed restore has left there is removed by
//! the next one; a directory with anything else is refused, as a blob may be a wrong one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The file that an unfinished restore has in the directory.
const MARK: &str = ".restoring";

/// A blob directory that is not whole yet.
pub(super) struct BlobPart {
    path: PathBuf,
    /// Keeps its lock.
    _lock: File,
}

impl BlobPart {
    /// Begins an empty directory.
    pub(super) fn begin(path: &Path) -> Result<BlobPart> {
        let mark = path.join(MARK);
        let cannot = || format!("cannot create {}", mark.display());
        fs::create_dir_all(path).with_context(cannot)?;
        let is_empty = fs::read_dir(path).with_context(cannot)?.next().is_none();
        if !is_empty && !mark.exists() {
            bail!(
                "{}: the blob directory is not empty; restore to another one, or empty it",
                path.display()
            );
        }
        let lock = File::options().create(true).truncate(false).write(true).open(&mark);
        let lock = lock.with_context(cannot)?;
        if lock.try_lock().is_err() {
            bail!("{}: another restore is writing it; wait for its end", path.display());
        }
        let part = BlobPart { path: path.to_owned(), _lock: lock };
        part.clear()?;
        Ok(part)
    }

    /// It is whole.
    pub(super) fn finish(&self) -> Result<()> {
        let mark = self.path.join(MARK);
        fs::remove_file(&mark).with_context(|| format!("cannot remove {}", mark.display()))
    }

    /// Its storage did not come to its place.
    pub(super) fn mark_again(self) {
        // Without the mark the next restore refuses the directory.
        let _ = File::create(self.path.join(MARK));
    }

    /// Removes what was restored.
    pub(super) fn discard(self) {
        // The next restore removes what is left.
        if self.clear().is_ok() {
            let _ = fs::remove_file(self.path.join(MARK));
        }
    }

    /// Removes all but the mark.
    fn clear(&self) -> Result<()> {
        let cannot = || format!("cannot empty {}", self.path.display());
        for entry in fs::read_dir(&self.path).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            let is_folder = entry.file_type().with_context(cannot)?.is_dir();
            match is_folder {
                true => fs::remove_dir_all(entry.path()).with_context(cannot)?,
                false if entry.file_name() == MARK => {}
                false => fs::remove_file(entry.path()).with_context(cannot)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_restore_left_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blobs");
        let part = BlobPart::begin(&path).unwrap();
        fs::write(path.join("one.blob"), b"part").unwrap();
        assert!(BlobPart::begin(&path).is_err(), "two writers");
        drop(part);
        let part = BlobPart::begin(&path).unwrap();
        assert!(!path.join("one.blob").exists());
        fs::write(path.join("one.blob"), b"whole").unwrap();
        part.finish().unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        assert!(BlobPart::begin(&path).is_err(), "not empty");
        assert_eq!(fs::read(path.join("one.blob")).unwrap(), b"whole");
    }
}
