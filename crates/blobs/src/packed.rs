//! Removing the blobs of revisions that a pack has dropped.
//!
//! Their list is durable before the packed file takes the place of the old one, and says how that
//! file can be told from the old one. So after a crash the next opening knows whether the list is
//! true, and removes what is left. The list stays until an opening or the next pack finds nothing
//! more to remove: removals are not synced one by one.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{info, warn};
use zodium_disk::{EntryKind, OpenMode, with_suffix};
use zodium_types::{Oid, Tid};

use crate::layout::{self, LAYOUT_MARKER, PACKED_NAME, TEMPORARY_FOLDER};
use crate::staged::asks_for_copy;
use crate::{BlobDirectory, BlobError, sums};

/// The list is written in pieces of this size.
const WRITE_BYTES: usize = 1 << 20;

/// What a pack has dropped, and which file it made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedBlobs {
    /// The last transaction up to the pack time.
    pub last_tid: Tid,
    /// Where the first transaction after it begins in the packed file.
    pub boundary: u64,
    /// Whether the blobs are moved to the directory's `.old`.
    pub keep_old: bool,
    /// The dropped revisions that have a blob.
    pub revisions: Vec<(Oid, Tid)>,
}

impl BlobDirectory {
    /// Makes the list durable, before the packed file counts.
    pub fn write_packed(&self, packed: &PackedBlobs) -> Result<(), BlobError> {
        let path = self.packed_path();
        let failed = |error| BlobError::writing(&path, "write", 0, error);
        let file = self.open_temporary(&path, OpenMode::Truncate)?;
        let mut text = String::new();
        let mut position = 0;
        let PackedBlobs { last_tid, boundary, keep_old, revisions } = packed;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{last_tid} {boundary} {keep_old}");
        for (oid, tid) in revisions {
            let _ = writeln!(text, "{oid} {tid}");
            if text.len() >= WRITE_BYTES {
                file.write_all_at(text.as_bytes(), position).map_err(failed)?;
                position += text.len() as u64;
                text.clear();
            }
        }
        file.write_all_at(text.as_bytes(), position).map_err(failed)?;
        file.sync().and_then(|()| self.disk.sync_folder_of(&path)).map_err(failed)
    }

    /// Removes what a finished pack has dropped, or moves it to `.old` and links all else there,
    /// in place of what the pack before has kept. When it is cancelled, the next opening removes
    /// the rest, and `.old` stays incomplete.
    ///
    /// # Errors
    /// The first one. All that can be removed and linked is removed and linked all the same.
    pub fn remove_packed(
        &self,
        packed: &PackedBlobs,
        cancelled: &AtomicBool,
    ) -> Result<(), BlobError> {
        let mut done = match cancelled.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.remove_old(),
        };
        done = done.and(self.remove_revisions(packed, cancelled).map(drop));
        if packed.keep_old && !cancelled.load(Ordering::Relaxed) {
            done = done.and(self.complete_old(cancelled));
        }
        done?;
        if cancelled.load(Ordering::Relaxed) {
            warn!(folder = %self.path.display(), "stopped before all blobs of dropped revisions \
                were removed; the next start removes the rest, and .old lacks blobs");
            return Ok(());
        }
        self.sums.drop_entries(&packed.revisions);
        self.damaged.forget(&packed.revisions);
        Ok(())
    }

    /// Links to `.old` what is not moved there.
    fn complete_old(&self, cancelled: &AtomicBool) -> Result<(), BlobError> {
        let old = self.old_path();
        self.create_folders(&old)?;
        self.copy_into(&self.path.join(LAYOUT_MARKER), &old.join(LAYOUT_MARKER))?;
        let linked = self.link_all(&self.path, &old, Self::copy_into, cancelled);
        if let Err(error) = self.copy_sums(&old) {
            warn!(folder = %old.display(), %error,
                "the recorded lengths and sums of blobs are not kept there");
        }
        linked
    }

    /// Ends what a crash after a pack has left. `is_file` tells whether the file is the one that
    /// the pack made.
    pub fn resume_packed(
        &self,
        is_file: impl FnOnce(&PackedBlobs) -> bool,
    ) -> Result<(), BlobError> {
        let path = self.packed_path();
        let there = self.disk.exists(&path);
        if !there.map_err(|error| BlobError::io(&path, "look for", error))? {
            return Ok(());
        }
        let packed = parse(&self.read_text(&path)?).filter(is_file);
        let never = AtomicBool::new(false);
        let removed =
            packed.as_ref().map_or(Ok(0), |packed| self.remove_revisions(packed, &never))?;
        if removed > 0 {
            packed.iter().for_each(|packed| self.sums.drop_entries(&packed.revisions));
            info!(folder = %self.path.display(), blobs = removed,
                "removed blobs of revisions that a pack before had dropped");
            return Ok(());
        }
        self.remove(&path)
    }

    /// Checks that what the pack before this one has kept can be told from what is kept elsewhere.
    ///
    /// # Errors
    /// When `.old` is a symbolic link, or a file: what it leads to is not of a pack. When it is
    /// the blob directory of a storage that is served. When the directory itself is away.
    pub fn check_old(&self) -> Result<(), BlobError> {
        self.check_present()?;
        let old = self.old_path();
        match self.disk.kind(&old) {
            Ok(None) => Ok(()),
            Ok(Some(EntryKind::Folder)) => self.lock_directory(&old).map(drop),
            Ok(Some(_)) => {
                let what = "it is no folder, but a link or a file: remove or rename it";
                let error = io::Error::new(io::ErrorKind::NotADirectory, what);
                Err(BlobError::io(&old, "replace", error))
            }
            Err(error) => Err(BlobError::io(&old, "look for", error)),
        }
    }

    /// Removes what the pack before this one has kept.
    ///
    /// # Errors
    /// As [`BlobDirectory::check_old`], before anything is removed; those of the files.
    pub fn remove_old(&self) -> Result<(), BlobError> {
        self.check_old()?;
        self.remove_tree(&self.old_path())
    }

    /// How many were there to be removed. Goes on after an error; the first is returned.
    fn remove_revisions(
        &self,
        packed: &PackedBlobs,
        cancelled: &AtomicBool,
    ) -> Result<u64, BlobError> {
        let mut removed = Ok(0);
        for (oid, tid) in &packed.revisions {
            if cancelled.load(Ordering::Relaxed) {
                break;
            }
            let was_there = self.remove_revision(*oid, *tid, packed.keep_old);
            removed = removed.and_then(|count| Ok(count + u64::from(was_there?)));
        }
        removed
    }

    /// Whether it was there.
    fn remove_revision(&self, oid: Oid, tid: Tid, keep_old: bool) -> Result<bool, BlobError> {
        if !self.has(oid, tid)? {
            return Ok(false);
        }
        let path = self.path_of(oid, tid);
        match keep_old {
            true => self.move_to_old(&path)?,
            false => self.remove(&path)?,
        }
        let folder = self.folder_of(oid);
        let emptied = self.remove_empty_folders(&folder);
        emptied.map_err(|error| BlobError::io(&folder, "remove", error))?;
        Ok(true)
    }

    fn move_to_old(&self, path: &Path) -> Result<(), BlobError> {
        let Ok(inside) = path.strip_prefix(&self.path) else { return Ok(()) };
        let old = self.old_path().join(inside);
        if let Some(folder) = old.parent() {
            self.create_folders(folder)?;
        }
        match self.disk.move_file(path, &old) {
            // The directory is a mount point of its own.
            Err(error) if asks_for_copy(&error) => self.copy_into(path, &old)?,
            moved => moved.map_err(|error| BlobError::io(&old, "rename to", error))?,
        }
        // A rename does nothing if the pack before, whose files may be there still after a crash,
        // has linked the same file there.
        self.remove(path)
    }

    /// Gives `.old` its own recorded lengths and sums: those here go on with the commits.
    fn copy_sums(&self, old: &Path) -> Result<(), BlobError> {
        let Some(path) = self.sums.path() else { return Ok(()) };
        let to = old.join(sums::NAME);
        let copy = self.disk.open(&to, OpenMode::Truncate);
        let copy = copy.map_err(|error| BlobError::writing(&to, "create", 0, error))?;
        self.copy(path, copy.as_ref(), &to)
    }

    /// Gives all blobs below a folder a second name below another. What is removed or added
    /// meanwhile may be there or not. Goes on after an error; the first is returned.
    fn link_all(
        &self,
        from: &Path,
        to: &Path,
        link_one: fn(&BlobDirectory, &Path, &Path) -> Result<(), BlobError>,
        cancelled: &AtomicBool,
    ) -> Result<(), BlobError> {
        let mut done = Ok(());
        for entry in self.list_if_there(from)? {
            if cancelled.load(Ordering::Relaxed) {
                break;
            }
            let (path, link) = (from.join(&entry.name), to.join(&entry.name));
            let name = entry.name.to_str().unwrap_or_default();
            done = done.and(match entry.kind {
                EntryKind::Folder if name == TEMPORARY_FOLDER => Ok(()),
                EntryKind::Folder => self.link_all(&path, &link, link_one, cancelled),
                EntryKind::File | EntryKind::Other if layout::is_blob_name(name) => {
                    self.create_folders(to).and_then(|()| link_one(self, &path, &link))
                }
                // A link to a folder, perhaps because this disk has no space for its blobs.
                EntryKind::Other if name.starts_with("0x") => {
                    self.link_all(&path, &link, Self::link_into, cancelled)
                }
                EntryKind::File | EntryKind::Other => Ok(()),
            });
        }
        done
    }

    /// A second name where there are links, else a copy. Nothing when the file has gone.
    fn copy_into(&self, from: &Path, to: &Path) -> Result<(), BlobError> {
        match self.link_into(from, to) {
            Err(BlobError::Io { source, .. }) if asks_for_copy(&source) => {
                let copy = self.disk.open(to, OpenMode::Truncate);
                let copy = copy.map_err(|error| BlobError::io(to, "create", error))?;
                // Half of it would pass for the blob.
                self.copy(from, copy.as_ref(), to).inspect_err(|_| drop(self.disk.remove(to)))
            }
            result => result,
        }
    }

    /// A second name. Nothing when the file has gone.
    fn link_into(&self, from: &Path, to: &Path) -> Result<(), BlobError> {
        use io::ErrorKind::{AlreadyExists, NotFound};
        match self.disk.link(from, to) {
            Err(error) if matches!(error.kind(), NotFound | AlreadyExists) => Ok(()),
            result => result.map_err(|error| BlobError::io(to, "link", error)),
        }
    }

    /// Makes a folder of `.old` and those above it. They have the permissions of those that they
    /// are copies of: the directory's may be all that keeps other users from its blobs.
    fn create_folders(&self, folder: &Path) -> Result<(), BlobError> {
        let old = self.old_path();
        let missing = folder.ancestors().take_while(|folder| folder.starts_with(&old));
        for folder in missing.collect::<Vec<_>>().into_iter().rev() {
            let made = self.disk.create_folder(folder).and_then(|is_new| {
                let inside = folder.strip_prefix(&old).unwrap_or(Path::new(""));
                if is_new {
                    self.disk.copy_permissions(&self.path.join(inside), folder)
                } else {
                    Ok(())
                }
            });
            made.map_err(|error| BlobError::io(folder, "create", error))?;
        }
        Ok(())
    }

    fn remove_tree(&self, folder: &Path) -> Result<(), BlobError> {
        for entry in self.list_if_there(folder)? {
            let path = folder.join(&entry.name);
            match entry.kind {
                EntryKind::Folder => self.remove_tree(&path)?,
                EntryKind::File | EntryKind::Other => self.remove(&path)?,
            }
        }
        let removed = self.disk.remove_folder(folder);
        removed.map(|_| ()).map_err(|error| BlobError::io(folder, "remove", error))
    }

    fn list_if_there(&self, folder: &Path) -> Result<Vec<zodium_disk::Entry>, BlobError> {
        match self.disk.list(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            result => result.map_err(|error| BlobError::io(folder, "list", error)),
        }
    }

    fn packed_path(&self) -> PathBuf {
        self.path.join(TEMPORARY_FOLDER).join(PACKED_NAME)
    }

    fn old_path(&self) -> PathBuf {
        with_suffix(&self.path, ".old")
    }
}

/// The list as it was written; `None` when it is not whole.
fn parse(text: &str) -> Option<PackedBlobs> {
    let mut lines = text.split_inclusive('\n').map(|line| line.strip_suffix('\n'));
    let mut head = lines.next()??.split(' ');
    let last_tid = Tid(u64::from_str_radix(head.next()?, 16).ok()?);
    let boundary = head.next()?.parse().ok()?;
    let keep_old = head.next()?.parse().ok()?;
    let revision = |line: Option<&str>| {
        let (oid, tid) = line?.split_once(' ')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some((Oid(number(oid)?), Tid(number(tid)?)))
    };
    let revisions = lines.map(revision).collect::<Option<_>>()?;
    Some(PackedBlobs { last_tid, boundary, keep_old, revisions })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use zodium_disk::{Disk, FaultyDisk, MemoryDisk, Operation, RealDisk};

    use super::*;
    use crate::NewBlob;

    /// A new directory with a blob of each of these objects.
    fn with_blobs(disk: Arc<dyn Disk>, oids: &[Oid], tid: Tid) -> BlobDirectory {
        let directory = BlobDirectory::open(disk, Path::new("blobs"), false).unwrap();
        for oid in oids {
            let mut blob = directory.temporary().unwrap();
            blob.append(b"content").unwrap();
            let mut staged = directory.stage(Tid::ZERO, &[(*oid, NewBlob::Sent(&blob))]).unwrap();
            staged.commit(tid).unwrap();
            staged.keep();
        }
        directory
    }

    /// For each operation on names: whether the removal of a blob that is kept in `.old` succeeds
    /// although that operation fails.
    fn outcomes(error: io::ErrorKind) -> Vec<bool> {
        let mut outcomes = Vec::new();
        for nth in 1.. {
            let disk = FaultyDisk::new(MemoryDisk::new());
            let (oid, tid) = (Oid(1), Tid(1));
            let directory = with_blobs(Arc::new(disk.clone()), &[oid], tid);
            let revisions = vec![(oid, tid)];
            let packed = PackedBlobs { keep_old: true, revisions, ..PackedBlobs::default() };
            disk.fail(Operation::Folder, nth, error);
            let removed = directory.remove_packed(&packed, &AtomicBool::new(false));
            if !disk.has_failed() {
                return outcomes;
            }
            let inside = directory.path_of(oid, tid);
            let old = directory.old_path().join(inside.strip_prefix("blobs").unwrap());
            if removed.is_ok() {
                let is_there = |path: &Path| disk.exists(path).unwrap();
                assert!(!is_there(&inside) && is_there(&old), "{nth}");
            }
            outcomes.push(removed.is_ok());
        }
        outcomes
    }

    #[test]
    fn one_that_cannot_be_removed_keeps_no_other_from_it_nor_from_old() {
        for (keep_old, failing) in [(false, 1), (false, 3), (true, 1), (true, 4)] {
            let disk = FaultyDisk::new(MemoryDisk::new());
            let oids = [1, 2, 3, 4].map(Oid);
            let directory = with_blobs(Arc::new(disk.clone()), &oids, Tid(1));
            let revisions = oids[..3].iter().map(|oid| (*oid, Tid(1))).collect();
            let packed = PackedBlobs { keep_old, revisions, ..PackedBlobs::default() };
            directory.write_packed(&packed).unwrap();
            disk.fail(Operation::Folder, failing, io::ErrorKind::Other);
            directory.remove_packed(&packed, &AtomicBool::new(false)).unwrap_err();
            assert!(disk.has_failed());
            let is_there = |oid: &Oid| directory.has(*oid, Tid(1)).unwrap();
            let left = oids[..3].iter().filter(|oid| is_there(oid)).count();
            assert!(left <= 1 && is_there(&oids[3]), "{keep_old} {failing}: {left}");
            let is_in_old = |oid: &Oid| {
                let path = directory.path_of(*oid, Tid(1));
                let old = directory.old_path().join(path.strip_prefix("blobs").unwrap());
                disk.exists(&old).unwrap()
            };
            assert!(oids.iter().all(|oid| is_in_old(oid) == keep_old), "{keep_old} {failing}");
            directory.resume_packed(|_| true).unwrap();
            assert!(!oids[..3].iter().any(is_there));
        }
    }

    #[test]
    fn what_a_link_named_old_leads_to_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let directory = BlobDirectory::open(Arc::new(RealDisk), &path("blobs"), false).unwrap();
        std::fs::create_dir(path("other")).unwrap();
        std::fs::write(path("other/file"), b"content").unwrap();
        std::os::unix::fs::symlink(path("other"), path("blobs.old")).unwrap();
        let error = directory.remove_old().unwrap_err().to_string();
        assert!(error.contains("blobs.old: replace failed: it is no folder"), "{error}");
        assert!(path("other/file").exists() && path("blobs.old").exists());
        std::fs::remove_file(path("blobs.old")).unwrap();
        std::fs::rename(path("other"), path("blobs.old")).unwrap();
        directory.remove_old().unwrap();
        assert!(!path("blobs.old").exists());
        directory.remove_old().unwrap();
    }

    #[test]
    fn blobs_behind_links_are_kept_in_old() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let directory = BlobDirectory::open(Arc::new(RealDisk), &path("blobs"), false).unwrap();
        let [in_folder, alone] = [Oid(1), Oid(1 << 56)];
        std::fs::create_dir(path("disk")).unwrap();
        std::os::unix::fs::symlink(path("disk"), path("blobs/0x00")).unwrap();
        for (oid, file) in [(in_folder, directory.path_of(in_folder, Tid(1))), (alone, path("b"))] {
            std::fs::create_dir_all(directory.folder_of(oid)).unwrap();
            std::fs::write(file, b"content").unwrap();
        }
        std::os::unix::fs::symlink(path("b"), directory.path_of(alone, Tid(1))).unwrap();
        let packed = PackedBlobs { keep_old: true, ..PackedBlobs::default() };
        directory.remove_packed(&packed, &AtomicBool::new(false)).unwrap();
        for oid in [in_folder, alone] {
            let inside = directory.path_of(oid, Tid(1));
            let old = directory.old_path().join(inside.strip_prefix(path("blobs")).unwrap());
            assert_eq!(std::fs::read(old).unwrap(), b"content");
        }
    }

    #[test]
    fn a_blob_that_the_pack_before_has_linked_to_old_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blobs");
        let directory = BlobDirectory::open(Arc::new(RealDisk), &path, false).unwrap();
        let (oid, tid) = (Oid(1), Tid(1));
        std::fs::create_dir_all(directory.folder_of(oid)).unwrap();
        std::fs::write(directory.path_of(oid, tid), b"content").unwrap();
        let packed = PackedBlobs { keep_old: true, ..PackedBlobs::default() };
        directory.remove_packed(&packed, &AtomicBool::new(false)).unwrap();
        // The next one was killed before it removed anything.
        let packed = PackedBlobs { revisions: vec![(oid, tid)], ..packed };
        directory.write_packed(&packed).unwrap();
        directory.resume_packed(|_| true).unwrap();
        assert!(!directory.has(oid, tid).unwrap());
    }

    #[test]
    fn a_removal_that_was_cancelled_goes_on_at_the_next_opening() {
        for keep_old in [false, true] {
            let disk = MemoryDisk::new();
            let (oid, tid) = (Oid(1), Tid(1));
            let directory = with_blobs(Arc::new(disk.clone()), &[oid], tid);
            let revisions = vec![(oid, tid)];
            let packed = PackedBlobs { keep_old, revisions, ..PackedBlobs::default() };
            directory.write_packed(&packed).unwrap();
            directory.remove_packed(&packed, &AtomicBool::new(true)).unwrap();
            assert!(
                directory.has(oid, tid).unwrap() && !disk.exists(&directory.old_path()).unwrap()
            );
            directory.resume_packed(|_| true).unwrap();
            assert!(!directory.has(oid, tid).unwrap());
        }
    }

    #[test]
    fn a_blob_that_cannot_be_renamed_to_old_is_copied_there() {
        let (moved, failed) = (io::ErrorKind::CrossesDevices, io::ErrorKind::Other);
        let count = |error| outcomes(error).into_iter().filter(|is_ok| *is_ok).count();
        // The rename of the blob, and the link of the layout's name.
        assert_eq!(count(moved), count(failed) + 2);
    }
}
