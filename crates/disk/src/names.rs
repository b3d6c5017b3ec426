//! The directory tree of a disk in memory: current names, and durable names.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::EntryKind;
use crate::memory_file::MemoryFile;
use crate::power_cut::{Choose, Survivors};

/// The names now, and at the last sync of each folder.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) live: Tree,
    pub(crate) synced: Tree,
    /// The changes between the two, in order.
    pending: Vec<Change>,
    /// Whether changes are not kept.
    volatile: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: BTreeMap<PathBuf, Arc<MemoryFile>>,
    pub(crate) folders: BTreeSet<PathBuf>,
}

/// The effect of one atomic operation on names: a rename changes two.
type Change = Vec<(PathBuf, Named)>;

/// What a name is changed to.
#[derive(Clone, Debug)]
enum Named {
    Nothing,
    File(Arc<MemoryFile>),
    Folder,
}

impl Names {
    /// Creates the names of a disk that a power cut empties.
    pub(crate) fn volatile() -> Names {
        Names { volatile: true, ..Names::default() }
    }

    /// Creates names that are all durable.
    pub(crate) fn of(tree: Tree) -> Names {
        Names { live: tree.clone(), synced: tree, ..Names::default() }
    }

    /// Adds a durable name of a file.
    pub(crate) fn put(&mut self, path: &Path, file: &Arc<MemoryFile>) {
        for change in &mut self.pending {
            change.retain(|(changed, _)| changed != path);
        }
        self.synced.files.insert(path.to_owned(), Arc::clone(file));
        self.live.files.insert(path.to_owned(), Arc::clone(file));
    }

    /// Adds a name of a file.
    pub(crate) fn insert(&mut self, path: &Path, file: &Arc<MemoryFile>) {
        self.change(vec![(path.to_owned(), Named::File(Arc::clone(file)))]);
    }

    /// Removes a name; false when there is none.
    pub(crate) fn remove(&mut self, path: &Path) -> bool {
        let is_there = self.live.files.contains_key(path);
        if is_there {
            self.change(vec![(path.to_owned(), Named::Nothing)]);
        }
        is_there
    }

    /// Renames a file.
    pub(crate) fn move_file(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.live.check_folder_of(to)?;
        let file = Arc::clone(self.live.files.get(from).ok_or(io::ErrorKind::NotFound)?);
        let to = (to.to_owned(), Named::File(file));
        self.change(vec![(from.to_owned(), Named::Nothing), to]);
        Ok(())
    }

    pub(crate) fn create_folder(&mut self, path: &Path) -> io::Result<bool> {
        match self.live.kind(path) {
            None => {
                self.live.check_folder_of(path)?;
                self.change(vec![(path.to_owned(), Named::Folder)]);
                Ok(true)
            }
            Some(EntryKind::Folder) => Ok(false),
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    pub(crate) fn remove_folder(&mut self, path: &Path) -> bool {
        let mut paths = self.live.files.keys().chain(&self.live.folders);
        if paths.any(|inside| inside.parent() == Some(path)) || !self.live.folders.contains(path) {
            return false;
        }
        self.change(vec![(path.to_owned(), Named::Nothing)]);
        true
    }

    /// Makes all names in a folder durable.
    pub(crate) fn sync_folder(&mut self, folder: Option<&Path>) {
        self.synced.take_folder(folder, &self.live);
        for change in &mut self.pending {
            change.retain(|(path, _)| path.parent() != folder);
        }
        self.pending.retain(|change| !change.is_empty());
    }

    /// The names after a power cut of which these changes survive.
    pub(crate) fn after_power_cut(&self, survivors: Survivors, choose: Choose<'_>) -> Tree {
        let mut tree = self.synced.clone();
        let survives = survivors.choose(self.pending.len(), choose);
        for (change, survives) in self.pending.iter().zip(survives) {
            if survives {
                change.iter().for_each(|(path, named)| tree.set(path, named));
            }
        }
        tree.drop_lost(&self.live);
        tree
    }

    fn change(&mut self, change: Change) {
        let displaced = change.iter().filter_map(|(path, _)| self.live.files.get(path).cloned());
        let displaced: Vec<_> = displaced.collect();
        change.iter().for_each(|(path, named)| self.live.set(path, named));
        if !self.volatile {
            self.pending.push(change);
        }
        for file in displaced {
            let in_live = self.live.files.values().any(|other| Arc::ptr_eq(other, &file));
            // Beside this variable only the durable tree and pending changes hold it.
            if !in_live && Arc::strong_count(&file) == self.remembered(&file) + 1 {
                file.give_space_back();
            }
        }
    }

    /// The number of references from the durable tree and pending changes to a file.
    fn remembered(&self, file: &Arc<MemoryFile>) -> usize {
        let pending = self.pending.iter().flatten().filter_map(|(_, named)| match named {
            Named::File(file) => Some(file),
            Named::Nothing | Named::Folder => None,
        });
        let all = pending.chain(self.synced.files.values());
        all.filter(|other| Arc::ptr_eq(other, file)).count()
    }
}

impl Tree {
    pub(crate) fn kind(&self, path: &Path) -> Option<EntryKind> {
        if self.files.contains_key(path) {
            Some(EntryKind::File)
        } else if self.is_folder(path) {
            Some(EntryKind::Folder)
        } else {
            None
        }
    }

    pub(crate) fn is_folder(&self, path: &Path) -> bool {
        path.as_os_str().is_empty()
            || self.folders.contains(path)
            || self.files.keys().any(|file| file.parent() == Some(path))
    }

    fn check_folder_of(&self, path: &Path) -> io::Result<()> {
        let exists = path.parent().is_some_and(|folder| self.is_folder(folder));
        if exists { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn set(&mut self, path: &Path, named: &Named) {
        self.files.remove(path);
        self.folders.remove(path);
        match named {
            Named::Nothing => {}
            Named::File(file) => {
                self.files.insert(path.to_owned(), Arc::clone(file));
            }
            Named::Folder => {
                self.folders.insert(path.to_owned());
            }
        }
    }

    /// Replaces the names in one folder by those of another tree.
    fn take_folder(&mut self, folder: Option<&Path>, from: &Tree) {
        self.files.retain(|path, _| path.parent() != folder);
        self.folders.retain(|path| path.parent() != folder);
        let files = from.files.iter().filter(|(path, _)| path.parent() == folder);
        self.files.extend(files.map(|(path, file)| (path.clone(), Arc::clone(file))));
        let folders = from.folders.iter().filter(|path| path.parent() == folder);
        self.folders.extend(folders.cloned());
    }

    /// Drops the entries of folders whose creation was lost.
    fn drop_lost(&mut self, live: &Tree) {
        let folders = self.folders.clone();
        let lost = |path: &Path| {
            let mut made = path.ancestors().skip(1).filter(|folder| live.folders.contains(*folder));
            made.any(|folder| !folders.contains(folder))
        };
        self.files.retain(|path, _| !lost(path));
        self.folders.retain(|path| !lost(path));
    }
}
