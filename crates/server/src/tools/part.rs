//! A storage that is written beside its place, and moved there when it is whole.
//!
//! Key decision: a file beside it is locked by its writer. So what a killed process has left is
//! replaced, and neither what another one writes nor a file that only has such a name.

use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::iter;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;
use zodium_disk::{folder_of, sync_folder, with_suffix};

use super::storage_name::StorageName;

/// What follows the name of a storage in that of the file that its writer locks.
const LOCK_SUFFIX: &str = ".restoring";
/// What follows it in those of the files that writing a storage makes beside it.
const SIDE_SUFFIXES: [&str; 8] = [
    ".lock",
    ".checksums",
    ".index",
    ".index.crc32c",
    ".index.index_tmp",
    "-wal",
    "-shm",
    "-journal",
];

/// A data file or a database in SQLite that is not whole yet.
pub(crate) struct Part {
    /// The storage that is written.
    pub(crate) name: StorageName,
    pub(crate) written: PathBuf,
    output: PathBuf,
    lock_path: PathBuf,
    /// Keeps the lock.
    _lock: File,
}

impl Part {
    /// Begins the storage `output`, which must not exist. Replaces what a killed process has left.
    ///
    /// # Errors
    /// A file may have the name of the part, and not be of such a process: it has left no lock.
    pub(crate) fn begin(output: &StorageName) -> Result<Part> {
        let part = Part::resume(output)?;
        part.clear()?;
        Ok(part)
    }

    /// As [`Part::begin`], but what a process has left stays, to be written on.
    pub(crate) fn resume(output: &StorageName) -> Result<Part> {
        let (name, written, output) = match output {
            StorageName::File(path) => {
                let part = with_suffix(path, ".part");
                (StorageName::File(part.clone()), part, path.clone())
            }
            // The stem of its name is the name of the cluster.
            StorageName::Sqlite(path) => {
                let part = path.with_extension("part");
                (StorageName::Sqlite(part.clone()), part, path.clone())
            }
            _ => bail!("restore to a data file or to sqlite://PATH, and serve that"),
        };
        let folder = folder_of(&output);
        if !folder.is_dir() {
            bail!("{}: there is no such directory", folder.display());
        }
        if written == output {
            bail!("{}: a name that ends in .part is that of an unfinished one", output.display());
        }
        require_place(&name, &output)?;
        let lock_path = with_suffix(&written, LOCK_SUFFIX);
        let was_locked = lock_path.exists();
        // A part is no link: what that leads to is not ours.
        let is_other = |file: &PathBuf| !was_locked || file.is_symlink();
        if let Some(other) = files_of(&written).find(is_other) {
            bail!("{} is in the way, and is no unfinished part: rename it", other.display());
        }
        let cannot = || format!("cannot create {}", lock_path.display());
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(&lock_path).with_context(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("{}: another process is writing it; wait for its end", written.display())
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        require_unlocked(&written)?;
        note_owner(&file, &written, &output)?;
        Ok(Part { name, written, output, lock_path, _lock: file })
    }

    /// Whether a part of `output`, which is removed, would have the name of this file.
    pub(crate) fn would_replace(file: &Path, output: &Path) -> bool {
        let (Ok(file), Ok(folder)) = (file.canonicalize(), folder_of(output).canonicalize()) else {
            // It cannot be read either.
            return false;
        };
        let part = with_suffix(&folder.join(output.file_name().unwrap_or_default()), ".part");
        files_of(&part).any(|replaced| replaced == file)
    }

    /// Removes what a process has left.
    pub(crate) fn clear(&self) -> Result<()> {
        for old in files_of(&self.written) {
            fs::remove_file(&old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
        Ok(())
    }

    /// Whether something was written that a later process could write on.
    pub(crate) fn is_begun(&self) -> bool {
        // A data file of ZODB on Python 2 begins with a mark.
        self.written.metadata().is_ok_and(|found| found.len() > 4)
    }

    /// Moves it to its place, its side files first. It must be closed.
    ///
    /// # Errors
    /// A server that was started meanwhile may have made a database there. The part stays.
    pub(crate) fn finish(self) -> Result<()> {
        let kept = || format!("what was written is {}", self.written.display());
        require_place(&self.name, &self.output).with_context(kept)?;
        for suffix in SIDE_SUFFIXES {
            let side = with_suffix(&self.written, suffix);
            if side.exists() {
                rename(&side, &with_suffix(&self.output, suffix))?;
            }
        }
        rename(&self.written, &self.output)?;
        let cannot = || format!("cannot remove {}", self.lock_path.display());
        fs::remove_file(&self.lock_path).with_context(cannot)
    }

    /// Removes it. What is left of it does no harm.
    pub(crate) fn discard(self) {
        for file in files_of(&self.written) {
            let _ = fs::remove_file(file);
        }
        let _ = fs::remove_file(&self.lock_path);
    }
}

/// The files of a storage that are there: its own, and those that writing it makes beside it. Links
/// are among them, also those that lead nowhere: writing would make files where they lead.
pub(crate) fn files_of(path: &Path) -> impl Iterator<Item = PathBuf> {
    let sides = SIDE_SUFFIXES.map(|suffix| with_suffix(path, suffix));
    let is_there = |file: &PathBuf| file.symlink_metadata().is_ok_and(|found| !found.is_dir());
    iter::once(path.to_owned()).chain(sides).filter(is_there)
}

/// Refuses a place that has a database, or what one has left there that the new one would be taken
/// together with.
fn require_place(name: &StorageName, output: &Path) -> Result<()> {
    let has_bytes = |path: &Path| path.metadata().is_ok_and(|found| found.len() > 0);
    if has_bytes(output) {
        bail!("{} exists already: name a new file", output.display());
    }
    if let StorageName::Sqlite(_) = name {
        let logs = ["-wal", "-journal"].map(|suffix| with_suffix(output, suffix));
        if let Some(log) = logs.iter().find(|log| has_bytes(log)) {
            bail!(
                "{} is the log of a database that is not there any more, and SQLite would apply \
                 it to the new one: move it away",
                log.display()
            );
        }
    }
    require_unlocked(output)
}

/// Notes in its lock which storage a part is of: `a.db` and `a.sqlite` have the same one. Refuses
/// that of another storage.
fn note_owner(mut lock: &File, written: &Path, output: &Path) -> Result<()> {
    let cannot = || format!("cannot write {}{LOCK_SUFFIX}", written.display());
    let mut owner = Vec::new();
    lock.read_to_end(&mut owner).with_context(cannot)?;
    let name = output.file_name().unwrap_or_default();
    if owner == name.as_encoded_bytes() {
        return Ok(());
    }
    if !owner.is_empty() && files_of(written).next().is_some() {
        let owner = String::from_utf8_lossy(&owner);
        bail!(
            "{} is the unfinished part of {owner}: rename it, or go on with that",
            written.display()
        );
    }
    lock.set_len(0).and_then(|()| lock.rewind()).with_context(cannot)?;
    lock.write_all(name.as_encoded_bytes()).with_context(cannot)
}

/// Refuses a data file that another process has open: also one that has lost its name since.
fn require_unlocked(path: &Path) -> Result<()> {
    let lock = with_suffix(path, ".lock");
    let is_held = File::open(&lock)
        .is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
    if is_held {
        bail!("{}: another process has locked it; stop that one first", lock.display());
    }
    Ok(())
}

/// Renames a file, durably.
fn rename(from: &Path, to: &Path) -> Result<()> {
    let folder = folder_of(to);
    let renamed = fs::rename(from, to).and_then(|()| sync_folder(folder));
    renamed.with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_replaces_an_old_one_and_is_moved_with_its_side_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.fs.part"), b"old").unwrap();
        fs::write(path("a.fs.part.index"), b"old").unwrap();
        fs::write(path("a.fs.partial"), b"other").unwrap();
        fs::write(path("a.fs.part.restoring"), b"").unwrap();
        let name = StorageName::File(path("a.fs"));
        let part = Part::begin(&name).unwrap();
        assert!(Part::begin(&name).is_err(), "two writers");
        assert!(!path("a.fs.part").exists() && !path("a.fs.part.index").exists());
        fs::write(path("a.fs.part"), b"new").unwrap();
        fs::write(path("a.fs.part.index"), b"index").unwrap();
        assert!(!path("a.fs").exists());
        part.finish().unwrap();
        assert_eq!(fs::read(path("a.fs")).unwrap(), b"new");
        assert_eq!(fs::read(path("a.fs.index")).unwrap(), b"index");
        assert!(!path("a.fs.part").exists() && path("a.fs.partial").exists());
        assert!(!path("a.fs.part.restoring").exists());
        assert!(Part::begin(&name).is_err(), "it exists");
    }

    #[test]
    fn files_that_only_have_the_name_of_a_part_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let name = StorageName::Sqlite(path("a.sqlite"));
        fs::write(path("a.part-2"), b"other").unwrap();
        fs::write(path("a.part.bak"), b"other").unwrap();
        Part::begin(&name).unwrap().discard();
        let part = Part::begin(&name).unwrap();
        fs::write(path("a.part"), b"new").unwrap();
        part.finish().unwrap();
        assert!(path("a.part-2").exists() && path("a.part.bak").exists());
        fs::remove_file(path("a.sqlite")).unwrap();
        for other in ["a.part", "a.part-wal"] {
            fs::write(path(other), b"other").unwrap();
            for _ in 0..2 {
                let refused = Part::begin(&name).map(|_| ()).unwrap_err().to_string();
                assert!(refused.contains(other) && refused.contains("in the way"), "{refused}");
            }
            fs::remove_file(path(other)).unwrap();
        }
        Part::begin(&name).unwrap();
    }

    #[test]
    fn a_log_that_a_lost_database_has_left_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let name = StorageName::Sqlite(path("a.sqlite"));
        let part = Part::begin(&name).unwrap();
        fs::write(path("a.part"), b"new").unwrap();
        for log in ["a.sqlite-wal", "a.sqlite-journal"] {
            fs::write(path(log), b"").unwrap();
            require_place(&part.name, &part.output).unwrap();
            fs::write(path(log), b"old").unwrap();
            let refused = require_place(&part.name, &part.output).unwrap_err().to_string();
            assert!(refused.contains(log), "{refused}");
            fs::remove_file(path(log)).unwrap();
        }
        fs::write(path("a.sqlite-wal"), b"old").unwrap();
        let refused = part.finish().unwrap_err().to_string();
        assert!(refused.contains("a.part"), "{refused}");
        assert_eq!(fs::read(path("a.part")).unwrap(), b"new");
        assert!(Part::begin(&name).is_err());
    }

    #[test]
    fn a_data_file_that_another_process_has_open_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let name = StorageName::File(path("a.fs"));
        for locked in ["a.fs.lock", "a.fs.part.lock"] {
            fs::write(path("a.fs.part"), b"served").unwrap();
            fs::write(path("a.fs.part.restoring"), b"").unwrap();
            let lock = File::create(path(locked)).unwrap();
            lock.try_lock().unwrap();
            let refused = Part::begin(&name).map(|_| ()).unwrap_err().to_string();
            assert!(refused.contains(locked), "{refused}");
            assert_eq!(fs::read(path("a.fs.part")).unwrap(), b"served");
            drop(lock);
            fs::remove_file(path(locked)).unwrap();
        }
    }

    #[test]
    fn the_part_of_another_database_with_the_same_stem_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| StorageName::Sqlite(folder.path().join(name));
        drop(Part::begin(&name("a.db")).unwrap());
        drop(Part::begin(&name("a.sqlite")).unwrap());
        fs::write(folder.path().join("a.part"), b"begun").unwrap();
        let refused = Part::begin(&name("a.db")).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("a.sqlite"), "{refused}");
        assert!(Part::resume(&name("a.sqlite")).unwrap().is_begun());
        drop(Part::begin(&name("a.sqlite")).unwrap());
        Part::begin(&name("a.db")).unwrap().discard();
    }

    #[test]
    fn a_database_whose_name_is_that_of_its_part_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let name = StorageName::Sqlite(folder.path().join("a.part"));
        assert!(Part::begin(&name).is_err());
    }

    #[test]
    fn a_link_in_the_place_of_a_part_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let name = StorageName::File(path("a.fs"));
        fs::write(path("there"), b"other").unwrap();
        for lead in ["there", "nowhere"] {
            for link in ["a.fs.part", "a.fs.part.index", "a.fs.part.restoring"] {
                if link != "a.fs.part.restoring" {
                    // As a killed process leaves it.
                    fs::write(path("a.fs.part.restoring"), b"").unwrap();
                }
                std::os::unix::fs::symlink(lead, path(link)).unwrap();
                let refused = Part::begin(&name).map(|_| ()).unwrap_err().to_string();
                assert!(refused.contains(link), "{refused}");
                fs::remove_file(path(link)).unwrap();
                let _ = fs::remove_file(path("a.fs.part.restoring"));
            }
        }
        assert!(!path("nowhere").exists());
        Part::begin(&name).unwrap().discard();
        assert_eq!(fs::read(path("there")).unwrap(), b"other");
    }

    #[test]
    fn a_part_that_is_given_up_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let part = Part::begin(&StorageName::Sqlite(folder.path().join("a.sqlite"))).unwrap();
        fs::write(folder.path().join("a.part"), b"x").unwrap();
        fs::write(folder.path().join("a.part-wal"), b"x").unwrap();
        part.discard();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
