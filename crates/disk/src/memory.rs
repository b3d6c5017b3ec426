//! A disk in memory that remembers what would survive a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::memory_file::{MemoryFile, Space};
use crate::{Disk, DiskFile, Entry, EntryKind, FileLock, LockError, OpenMode};

/// Files in memory. Clones share the same files.
///
/// Folders that [`Disk::create_folder`] did not make are there as soon as a file in them is named.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    names: Arc<Mutex<Names>>,
    space: Arc<Mutex<Space>>,
    /// Does not remember what was synced.
    volatile: bool,
}

/// What stands where: now, and as it was when each folder was last synced.
#[derive(Debug, Default)]
struct Names {
    live: Tree,
    synced: Tree,
}

#[derive(Clone, Debug, Default)]
struct Tree {
    files: BTreeMap<PathBuf, Arc<MemoryFile>>,
    folders: BTreeSet<PathBuf>,
}

impl MemoryDisk {
    /// A disk without limit.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// A disk without limit that takes half the memory: of its files nothing is left after a power
    /// cut.
    pub fn volatile() -> MemoryDisk {
        MemoryDisk { volatile: true, ..MemoryDisk::default() }
    }

    /// A disk on which reserving or writing more than `bytes` in all files together fails as a
    /// full one does.
    pub fn with_capacity(bytes: u64) -> MemoryDisk {
        let disk = MemoryDisk::new();
        disk.set_capacity(bytes);
        disk
    }

    /// Makes the disk larger or smaller. What is there already stays.
    pub fn set_capacity(&self, bytes: u64) {
        self.space.lock().capacity = Some(bytes);
    }

    /// Bytes in use by all files, with what is reserved behind their ends.
    pub fn used_bytes(&self) -> u64 {
        self.space.lock().used
    }

    /// What is left after a power cut now: every file as it was when last synced.
    ///
    /// Renames and removals count as durable at once, as [`Disk::rename`] promises.
    pub fn after_power_cut(&self) -> MemoryDisk {
        self.image(&self.names.lock().live, MemoryFile::synced)
    }

    /// As [`MemoryDisk::after_power_cut`], but of the names too only those that were synced with
    /// their folder: what was created or renamed since is not there, what was removed is again.
    pub fn after_power_cut_with_names_lost(&self) -> MemoryDisk {
        let Names { live, synced } = &*self.names.lock();
        // A file is gone with any folder above it that is.
        let mut tree = synced.clone();
        let lost = |path: &Path| {
            let mut made = path.ancestors().filter(|folder| live.folders.contains(*folder));
            made.any(|folder| !synced.folders.contains(folder))
        };
        tree.files.retain(|path, _| !lost(path));
        tree.folders.retain(|path| !lost(path));
        self.image(&tree, MemoryFile::synced)
    }

    /// What is left when the process is killed now: every byte written, synced or not.
    pub fn after_kill(&self) -> MemoryDisk {
        self.image(&self.names.lock().live, MemoryFile::live)
    }

    /// The present bytes of a file.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        self.names.lock().live.files.get(path).map(|file| file.live())
    }

    /// The names of all files, in order.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.names.lock().live.files.keys().cloned().collect()
    }

    /// Puts a file there as if it had been written and synced.
    pub fn put(&self, path: &Path, bytes: Vec<u8>) {
        let file = Arc::new(MemoryFile::with_bytes(&self.space, &bytes));
        let mut names = self.names.lock();
        names.synced.files.insert(path.to_owned(), Arc::clone(&file));
        names.live.files.insert(path.to_owned(), file);
    }

    fn image(&self, tree: &Tree, bytes: impl Fn(&MemoryFile) -> Vec<u8>) -> MemoryDisk {
        let image = MemoryDisk::new();
        image.space.lock().capacity = self.space.lock().capacity;
        for (path, file) in &tree.files {
            image.put(path, bytes(file));
        }
        let mut names = image.names.lock();
        names.live.folders.clone_from(&tree.folders);
        names.synced.folders.clone_from(&tree.folders);
        drop(names);
        image
    }
}

impl Tree {
    fn kind(&self, path: &Path) -> Option<EntryKind> {
        if self.files.contains_key(path) {
            Some(EntryKind::File)
        } else if self.is_folder(path) {
            Some(EntryKind::Folder)
        } else {
            None
        }
    }

    fn is_folder(&self, path: &Path) -> bool {
        path.as_os_str().is_empty()
            || self.folders.contains(path)
            || self.files.keys().any(|file| file.parent() == Some(path))
    }

    fn check_folder_of(&self, path: &Path) -> io::Result<()> {
        let exists = path.parent().is_some_and(|folder| self.is_folder(folder));
        if exists { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Makes the names in one folder those of another tree.
    fn take_folder(&mut self, folder: Option<&Path>, from: &Tree) {
        self.files.retain(|path, _| path.parent() != folder);
        self.folders.retain(|path| path.parent() != folder);
        let files = from.files.iter().filter(|(path, _)| path.parent() == folder);
        self.files.extend(files.map(|(path, file)| (path.clone(), Arc::clone(file))));
        let folders = from.folders.iter().filter(|path| path.parent() == folder);
        self.folders.extend(folders.cloned());
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut names = self.names.lock();
        let found = names.live.files.get(path).cloned();
        match (found, mode) {
            (Some(_), OpenMode::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (None, OpenMode::Read | OpenMode::Write) => Err(io::ErrorKind::NotFound.into()),
            (Some(file), OpenMode::Truncate) => {
                file.set_length(0)?;
                Ok(file)
            }
            (Some(file), _) => Ok(file),
            (None, _) => {
                let file = Arc::new(MemoryFile::new(&self.space, !self.volatile));
                names.live.files.insert(path.to_owned(), Arc::clone(&file));
                Ok(file)
            }
        }
    }

    fn temporary(&self, _near: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(MemoryFile::new(&self.space, !self.volatile)))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.names.lock().live.kind(path).is_some())
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        Ok(self.names.lock().live.kind(path))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let tree = &self.names.lock().live;
        if !tree.is_folder(folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let paths = tree.files.keys().chain(&tree.folders);
        let inside = paths.filter(|path| path.parent() == Some(folder));
        let entry = |path: &PathBuf| {
            let name = path.file_name()?.to_owned();
            Some(Entry { name, kind: tree.kind(path)? })
        };
        Ok(inside.filter_map(entry).collect())
    }

    fn create_folder(&self, path: &Path) -> io::Result<bool> {
        let tree = &mut self.names.lock().live;
        match tree.kind(path) {
            None => {
                tree.check_folder_of(path)?;
                tree.folders.insert(path.to_owned());
                Ok(true)
            }
            Some(EntryKind::Folder) => Ok(false),
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    fn remove_folder(&self, path: &Path) -> io::Result<bool> {
        let tree = &mut self.names.lock().live;
        let mut paths = tree.files.keys().chain(&tree.folders);
        if paths.any(|inside| inside.parent() == Some(path)) {
            return Ok(false);
        }
        Ok(tree.folders.remove(path))
    }

    fn move_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        let tree = &mut self.names.lock().live;
        tree.check_folder_of(to)?;
        let file = tree.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        tree.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        let is_there = self.names.lock().live.files.contains_key(path);
        if is_there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.move_file(from, to)?;
        self.sync_folder_of(to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let tree = &mut self.names.lock().live;
        if tree.kind(to).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::clone(tree.files.get(from).ok_or(io::ErrorKind::NotFound)?);
        tree.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn copy_permissions(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.names.lock().live.files.remove(path);
        Ok(())
    }

    fn sync_folder_of(&self, path: &Path) -> io::Result<()> {
        let Names { live, synced } = &mut *self.names.lock();
        synced.take_folder(path.parent(), live);
        Ok(())
    }

    fn lock(&self, _path: &Path) -> Result<FileLock, LockError> {
        // One process, and a test that opens twice means to.
        Ok(FileLock { _held: Box::new(()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsynced_bytes_are_gone_after_a_power_cut_but_not_after_a_kill() {
        let disk = MemoryDisk::new();
        let path = Path::new("Data.fs");
        let file = disk.open(path, OpenMode::Create).unwrap();
        file.write_all_at(b"kept", 0).unwrap();
        file.sync().unwrap();
        file.write_all_at(b"lost", 4).unwrap();
        assert_eq!(disk.bytes(path).unwrap(), b"keptlost");
        assert_eq!(disk.after_power_cut().bytes(path).unwrap(), b"kept");
        assert_eq!(disk.after_kill().bytes(path).unwrap(), b"keptlost");
    }

    #[test]
    fn a_full_disk_says_so_before_anything_is_written() {
        let disk = MemoryDisk::with_capacity(10);
        let file = disk.open(Path::new("f"), OpenMode::Create).unwrap();
        assert_eq!(file.reserve(0, 11).unwrap_err().kind(), io::ErrorKind::StorageFull);
        file.reserve(0, 10).unwrap();
        disk.set_capacity(11);
        file.reserve(0, 11).unwrap();
    }

    #[test]
    fn files_share_the_space_and_give_it_back() {
        let disk = MemoryDisk::with_capacity(10);
        let first = disk.open(Path::new("first"), OpenMode::Create).unwrap();
        let second = disk.open(Path::new("second"), OpenMode::Create).unwrap();
        first.write_all_at(b"abc", 0).unwrap();
        first.reserve(3, 8).unwrap();
        assert_eq!(disk.used_bytes(), 8);
        let refused = second.write_all_at(b"abc", 0).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        first.set_length(3).unwrap();
        second.write_all_at(b"abc", 0).unwrap();
        assert_eq!(disk.used_bytes(), 6);
        drop(first);
        disk.remove(Path::new("first")).unwrap();
        assert_eq!(disk.used_bytes(), 3);
    }

    #[test]
    fn names_are_lost_until_their_folder_is_synced() {
        let disk = MemoryDisk::new();
        let (old, new) = (Path::new("made/old"), Path::new("made/new"));
        disk.create_folder(Path::new("made")).unwrap();
        disk.open(old, OpenMode::Create).unwrap();
        disk.sync_folder_of(old).unwrap();
        assert_eq!(disk.after_power_cut_with_names_lost().paths(), Vec::<PathBuf>::new());
        disk.sync_folder_of(Path::new("made")).unwrap();
        assert_eq!(disk.after_power_cut_with_names_lost().paths(), [old]);
        disk.move_file(old, new).unwrap();
        assert_eq!(disk.after_power_cut().paths(), [new]);
        assert_eq!(disk.after_power_cut_with_names_lost().paths(), [old]);
        disk.sync_folder_of(new).unwrap();
        assert_eq!(disk.after_power_cut_with_names_lost().paths(), [new]);
    }

    #[test]
    fn folders_hold_what_was_put_there_and_go_when_empty() {
        let disk = MemoryDisk::new();
        let (folder, file) = (Path::new("outer/inner"), Path::new("outer/inner/file"));
        assert_eq!(disk.create_folder(folder).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(disk.create_folder(Path::new("outer")).unwrap());
        assert!(disk.create_folder(folder).unwrap());
        assert!(!disk.create_folder(folder).unwrap());
        disk.put(file, Vec::new());
        assert_eq!(disk.list(folder).unwrap().len(), 1);
        assert!(!disk.remove_folder(folder).unwrap());
        disk.remove(file).unwrap();
        assert!(disk.remove_folder(folder).unwrap());
        assert_eq!(disk.list(folder).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
