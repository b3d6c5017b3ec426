//! A disk in memory that knows what a power cut would leave.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::chunks::Chunks;
use crate::memory_file::{MemoryFile, Space};
use crate::names::{Names, Tree};
use crate::power_cut::Choose;
use crate::{
    Disk, DiskFile, Entry, EntryKind, FileLock, FileStatus, LockError, OpenMode, PowerCut,
    Survivors,
};

/// Files in memory. Clones share the same files.
///
/// Folders exist as soon as a file in them is created, also without [`Disk::create_folder`].
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    names: Arc<Mutex<Names>>,
    space: Arc<Mutex<Space>>,
    /// Whether synced contents are not kept.
    volatile: bool,
    /// Power cuts so far.
    cuts: u64,
}

impl MemoryDisk {
    /// Creates a disk of unlimited capacity.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// Creates a disk that takes half the memory, but loses all files in a power cut.
    pub fn volatile() -> MemoryDisk {
        let names = Arc::new(Mutex::new(Names::volatile()));
        MemoryDisk { names, volatile: true, ..MemoryDisk::default() }
    }

    /// Creates a disk of limited capacity: beyond `bytes`, reserving and writing fail.
    pub fn with_capacity(bytes: u64) -> MemoryDisk {
        let disk = MemoryDisk::new();
        disk.set_capacity(bytes);
        disk
    }

    /// Sets the capacity. Present files stay.
    pub fn set_capacity(&self, bytes: u64) {
        self.space.lock().capacity = Some(bytes);
    }

    /// Bytes used by all files, with those reserved behind their ends.
    pub fn used_bytes(&self) -> u64 {
        self.space.lock().used
    }

    /// The disk after a power cut now: every file as it was when last synced.
    ///
    /// Renames and removals count as durable at once, as [`Disk::rename`] promises.
    pub fn after_power_cut(&self) -> MemoryDisk {
        self.cut(&self.names.lock().live, MemoryFile::synced)
    }

    /// As [`MemoryDisk::after_power_cut`], but names are also those of the last sync of their
    /// folder. Files created or renamed since are not there, removed ones are there again.
    pub fn after_power_cut_with_names_lost(&self) -> MemoryDisk {
        let tree = self.names.lock().after_power_cut(Survivors::None, &mut |_| 0);
        self.cut(&tree, MemoryFile::synced)
    }

    /// The disk after a power cut now of the kind `cut`; `choose` makes its random choices. Files
    /// in one tree have different parts left.
    pub fn after(&self, cut: &PowerCut, choose: Choose<'_>) -> MemoryDisk {
        let tree = self.names.lock().after_power_cut(cut.names, choose);
        self.cut(&tree, |file| file.after_power_cut(cut, choose))
    }

    /// The disk after a kill of the process now: all bytes written, synced or not.
    pub fn after_kill(&self) -> MemoryDisk {
        self.image(&self.names.lock().live, MemoryFile::live)
    }

    /// The current bytes of a file.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        self.names.lock().live.files.get(path).map(|file| file.live().to_vec())
    }

    /// The names of all files, in order.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.names.lock().live.files.keys().cloned().collect()
    }

    /// Adds a file as if it had been written and synced.
    pub fn put(&self, path: &Path, bytes: Vec<u8>) {
        let bytes = Chunks::from(bytes.as_slice());
        let file = Arc::new(MemoryFile::with_bytes(&self.space, bytes));
        self.names.lock().put(path, &file);
    }

    fn cut(&self, tree: &Tree, bytes: impl FnMut(&MemoryFile) -> Chunks) -> MemoryDisk {
        MemoryDisk { cuts: self.cuts + 1, ..self.image(tree, bytes) }
    }

    fn image(&self, tree: &Tree, mut bytes: impl FnMut(&MemoryFile) -> Chunks) -> MemoryDisk {
        let image = MemoryDisk { cuts: self.cuts, ..MemoryDisk::new() };
        {
            let (mut new, old) = (image.space.lock(), self.space.lock());
            (new.capacity, new.files) = (old.capacity, old.files);
        }
        let mut copy = |file: &Arc<MemoryFile>| {
            Arc::new(MemoryFile::restored(&image.space, bytes(file), file.inode()))
        };
        let files = tree.files.iter().map(|(path, file)| (path.clone(), copy(file))).collect();
        let names = Names::of(Tree { files, folders: tree.folders.clone() });
        *image.names.lock() = names;
        image
    }
}

impl Disk for MemoryDisk {
    fn boot(&self) -> Option<u64> {
        Some(self.cuts + 1)
    }

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
                names.insert(path, &file);
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

    fn status(&self, path: &Path) -> io::Result<Option<FileStatus>> {
        let file = self.names.lock().live.files.get(path).cloned();
        file.map(|file| file.status()).transpose()
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

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        // There are no symbolic links here.
        Ok(path.to_owned())
    }

    fn create_folder(&self, path: &Path) -> io::Result<bool> {
        self.names.lock().create_folder(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<bool> {
        Ok(self.names.lock().remove_folder(path))
    }

    fn move_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.names.lock().move_file(from, to)
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
        let mut names = self.names.lock();
        if names.live.kind(to).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::clone(names.live.files.get(from).ok_or(io::ErrorKind::NotFound)?);
        names.insert(to, &file);
        Ok(())
    }

    fn copy_permissions(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.names.lock().remove(path);
        Ok(())
    }

    fn sync_folder_of(&self, path: &Path) -> io::Result<()> {
        self.names.lock().sync_folder(path.parent());
        Ok(())
    }

    fn lock(&self, _path: &Path) -> Result<FileLock, LockError> {
        // Only one process has this disk; the lock on the file keeps a second opener away.
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
    fn a_file_keeps_its_identity_under_new_names_and_over_a_crash() {
        let disk = MemoryDisk::new();
        let [old, new, other] = ["old", "new", "other"].map(Path::new);
        let identity = |disk: &MemoryDisk, path| Some(disk.status(path).unwrap()?.identity);
        disk.put(old, b"abc".to_vec());
        disk.put(other, b"abc".to_vec());
        let first = identity(&disk, old);
        assert_ne!(identity(&disk, other), first);
        disk.move_file(old, new).unwrap();
        disk.link(new, old).unwrap();
        for disk in [&disk, &disk.after_power_cut(), &disk.after_kill()] {
            assert_eq!([identity(disk, new), identity(disk, old)], [first; 2]);
            disk.open(Path::new("made later"), OpenMode::Create).unwrap();
            assert!(
                ![first, identity(disk, other)].contains(&identity(disk, Path::new("made later")))
            );
            assert_eq!(identity(disk, Path::new("missing")), None);
        }
        assert_eq!(disk.open(new, OpenMode::Read).unwrap().status().unwrap().length, 3);
    }

    #[test]
    fn a_lock_is_on_the_file_and_not_on_its_name_and_ends_with_a_crash() {
        let disk = MemoryDisk::new();
        let [old, new] = ["old", "new"].map(Path::new);
        disk.put(old, Vec::new());
        disk.link(old, new).unwrap();
        let is_free =
            |disk: &MemoryDisk, path| disk.open(path, OpenMode::Read).unwrap().lock().is_ok();
        let lock = disk.open(old, OpenMode::Write).unwrap().lock().unwrap();
        assert!(!is_free(&disk, new));
        assert!(is_free(&disk.after_kill(), new));
        disk.put(old, Vec::new());
        assert!(is_free(&disk, old));
        drop(lock);
        assert!(is_free(&disk, new));
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

    /// All possible images of a disk on which 3 pieces were changed and the file grew, found by
    /// trying choices until no new image appears.
    fn images_of(disk: &MemoryDisk, cut: &PowerCut) -> std::collections::BTreeSet<Vec<u8>> {
        let image = |seed: u64| {
            let mut state = seed;
            let mut choose = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            disk.after(cut, &mut choose).bytes(Path::new("f")).unwrap()
        };
        (0..2_000).map(image).collect()
    }

    fn disk_with_three_pieces_changed() -> MemoryDisk {
        let disk = MemoryDisk::new();
        let file = disk.open(Path::new("f"), OpenMode::Create).unwrap();
        disk.sync_folder_of(Path::new("f")).unwrap();
        file.write_all_at(&[1; 600], 0).unwrap();
        file.sync().unwrap();
        file.write_all_at(&[2; 900], 600).unwrap();
        disk
    }

    #[test]
    fn each_piece_changed_since_the_sync_is_there_or_not_after_a_power_cut() {
        let disk = disk_with_three_pieces_changed();
        let whole = PowerCut {
            pieces: Survivors::Any,
            piece_bytes: 512,
            tears_a_piece: false,
            length: crate::SurvivingLength::New,
            names: Survivors::All,
        };
        let images = images_of(&disk, &whole);
        assert_eq!(images.len(), 4);
        for image in images {
            assert_eq!((image.len(), &image[..600]), (1500, &[1; 600][..]));
            for piece in [&image[600..1024], &image[1024..]] {
                assert!(piece.iter().all(|byte| *byte == piece[0]), "{piece:?}");
                assert!([0, 2].contains(&piece[0]));
            }
        }
        let in_order = PowerCut { pieces: Survivors::First, ..whole };
        assert_eq!(images_of(&disk, &in_order).len(), 2);
        let torn = PowerCut { tears_a_piece: true, ..whole };
        assert!(images_of(&disk, &torn).len() > 30);
        let long_or_short = PowerCut { length: crate::SurvivingLength::Any, ..whole };
        let lengths = images_of(&disk, &long_or_short).iter().map(Vec::len).collect::<Vec<_>>();
        assert!(lengths.contains(&600) && lengths.contains(&1500));
        assert!(lengths.iter().any(|length| (601..1500).contains(length)));
    }

    #[test]
    fn what_was_cut_and_written_anew_may_read_as_before_as_zeros_or_as_written() {
        let disk = MemoryDisk::new();
        let file = disk.open(Path::new("f"), OpenMode::Create).unwrap();
        disk.sync_folder_of(Path::new("f")).unwrap();
        file.write_all_at(&[1; 1024], 0).unwrap();
        file.sync().unwrap();
        file.set_length(512).unwrap();
        file.write_all_at(&[2; 512], 512).unwrap();
        let cut = PowerCut {
            pieces: Survivors::Any,
            length: crate::SurvivingLength::New,
            ..PowerCut::KINDS[0]
        };
        let images: Vec<u8> = images_of(&disk, &cut).iter().map(|image| image[600]).collect();
        assert_eq!(images, [0, 1, 2]);
    }

    #[test]
    fn a_rename_survives_whole_or_not_at_all() {
        let disk = MemoryDisk::new();
        disk.put(Path::new("old"), vec![1]);
        disk.put(Path::new("new"), vec![2]);
        disk.remove(Path::new("other")).unwrap();
        disk.put(Path::new("other"), vec![3]);
        disk.move_file(Path::new("new"), Path::new("old")).unwrap();
        disk.remove(Path::new("other")).unwrap();
        let cut = PowerCut { names: Survivors::Any, ..PowerCut::KINDS[0] };
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..64_u64 {
            let mut number = 0;
            let mut choose = |below: u64| {
                number += 1;
                (seed >> number) % below
            };
            let image = disk.after(&cut, &mut choose);
            let bytes = |name: &str| image.bytes(Path::new(name));
            seen.insert((bytes("old"), bytes("new"), bytes("other")));
        }
        let one = |byte: u8| Some(vec![byte]);
        let expected = [
            (one(1), one(2), None),
            (one(1), one(2), one(3)),
            (one(2), None, None),
            (one(2), None, one(3)),
        ];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
    }
}
