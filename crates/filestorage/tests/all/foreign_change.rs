//! Other programs that use or change the data file while it is open for writing.
//!
//! A second opener is refused, whatever it calls the file and whatever became of the lock file.
//! What another program does to the file itself stops commits: nothing is acknowledged that the
//! next start would not find, and nothing that the other program wrote is cut or overwritten.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::support::{checked_at, commit, count_warnings, stores, tid};
use tempfile::TempDir;
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation, RealDisk};
use zodium_filestorage::{ChecksumMode, FileChange, FileStorage, FileStorageError, OpenOptions};
use zodium_storage::{PackOptions, Write as _, WriteState};
use zodium_types::Oid;

/// A folder with a data file of one transaction, which is closed.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        let storage = folder.open("Data.fs").unwrap();
        commit(&storage, stores(tid(1), &[(0, b"root"), (1, b"one")])).unwrap();
        storage.close().unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn open(&self, name: &str) -> Result<FileStorage, FileStorageError> {
        let checksums = ChecksumMode::Full;
        let options = OpenOptions { checksums, ..OpenOptions::new(self.path(name)) };
        FileStorage::open(Arc::new(RealDisk), &options)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }
}

fn change<T>(result: Result<T, FileStorageError>) -> FileChange {
    match result {
        Err(FileStorageError::Changed { change, .. }) => change,
        Err(other) => panic!("a change was expected, not {other}"),
        Ok(_) => panic!("the change was not noticed"),
    }
}

/// The file that was found to be locked.
fn locked_by_this_process(result: Result<FileStorage, FileStorageError>) -> PathBuf {
    match result {
        Err(error @ FileStorageError::Locked { .. }) => {
            let told = error.to_string();
            assert!(told.contains("locked by this process"), "{told}");
            let FileStorageError::Locked { lock, .. } = error else { unreachable!() };
            lock
        }
        Err(other) => panic!("a lock was expected, not {other}"),
        Ok(_) => panic!("the file was opened twice"),
    }
}

#[test]
fn no_second_opener_of_any_name_is_let_in_though_the_lock_file_was_removed() {
    let folder = Folder::new();
    symlink("Data.fs", folder.path("soft.fs")).unwrap();
    fs::hard_link(folder.path("Data.fs"), folder.path("hard.fs")).unwrap();
    let storage = folder.open("Data.fs").unwrap();
    let lock_path = folder.path("Data.fs.lock");
    assert_eq!(locked_by_this_process(folder.open("Data.fs")), lock_path);
    assert_eq!(locked_by_this_process(folder.open("soft.fs")), lock_path);
    assert_eq!(locked_by_this_process(folder.open("hard.fs")), folder.path("hard.fs"));
    fs::remove_file(&lock_path).unwrap();
    assert_eq!(locked_by_this_process(folder.open("Data.fs")), folder.path("Data.fs"));
    commit(&storage, stores(tid(2), &[(1, b"two")])).unwrap();
    drop(storage);
    folder.open("hard.fs").unwrap();
}

#[test]
fn the_lock_is_on_the_packed_file_too_and_readers_of_the_old_one_keep_none() {
    let folder = Folder::new();
    let storage = folder.open("Data.fs").unwrap();
    commit(&storage, stores(tid(2), &[(1, b"two")])).unwrap();
    let old = storage.reader().iterate(None, None).unwrap();
    pack(&storage).unwrap();
    fs::remove_file(folder.path("Data.fs.lock")).unwrap();
    assert_eq!(locked_by_this_process(folder.open("Data.fs")), folder.path("Data.fs"));
    commit(&storage, stores(tid(9), &[(1, b"nine")])).unwrap();
    drop(storage);
    // The iterator has the old file open, and no lock of another program's.
    folder.open("Data.fs").unwrap();
    drop(old);
}

fn pack(storage: &FileStorage) -> Result<(), FileStorageError> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let options = PackOptions::new(&cancelled);
    let mut pack = storage.packer().begin(tid(2), &options)?.expect("there is something to free");
    storage.packer().finish(&mut pack).map(drop)
}

#[test]
fn through_a_symbolic_link_the_file_itself_is_packed_and_has_the_companions() {
    let folder = Folder::new();
    fs::create_dir(folder.path("links")).unwrap();
    symlink(folder.path("Data.fs"), folder.path("links/Data.fs")).unwrap();
    fs::write(folder.path("links/Data.fs.index"), b"of a stock server").unwrap();
    let storage = folder.open("links/Data.fs").unwrap();
    commit(&storage, stores(tid(2), &[(1, b"two")])).unwrap();
    let before = folder.bytes("Data.fs").len();
    pack(&storage).unwrap();
    commit(&storage, stores(tid(3), &[(1, b"three")])).unwrap();
    storage.close().unwrap();
    assert!(fs::symlink_metadata(folder.path("links/Data.fs")).unwrap().is_symlink());
    assert!(folder.bytes("Data.fs").len() < before + 100);
    let mut beside_the_link: Vec<_> = fs::read_dir(folder.path("links")).unwrap().collect();
    let mut names: Vec<_> =
        beside_the_link.drain(..).map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    // The lock keeps away a stock server that is given the link; the stale index is gone.
    assert_eq!(names, ["Data.fs", "Data.fs.lock"]);
    drop(storage);
    let storage = folder.open("Data.fs").unwrap();
    assert_eq!(storage.reader().load_serial(Oid(1), tid(3)).unwrap().unwrap(), "three");
    storage.close().unwrap();
    // The checksums are beside the file, so a check through the link sees the changed byte too.
    let mut bytes = folder.bytes("Data.fs");
    let last_of_data = bytes.len() - 9;
    bytes[last_of_data] ^= 1;
    fs::write(folder.path("Data.fs"), bytes).unwrap();
    assert_eq!(checked_at(&RealDisk, &folder.path("links/Data.fs")).0.damages, 1);
}

#[test]
fn a_stock_lock_beside_the_link_keeps_the_file_closed() {
    let folder = Folder::new();
    symlink("Data.fs", folder.path("soft.fs")).unwrap();
    let _stock = RealDisk.lock(&folder.path("soft.fs.lock")).unwrap();
    assert_eq!(locked_by_this_process(folder.open("soft.fs")), folder.path("soft.fs.lock"));
    folder.open("Data.fs").unwrap();
}

#[test]
fn a_link_of_which_the_lock_file_is_a_link_too_can_be_opened() {
    let folder = Folder::new();
    symlink("Data.fs", folder.path("soft.fs")).unwrap();
    symlink("Data.fs.lock", folder.path("soft.fs.lock")).unwrap();
    let storage = folder.open("soft.fs").unwrap();
    commit(&storage, stores(tid(2), &[(1, b"two")])).unwrap();
    storage.close().unwrap();
}

/// What another program does to the file.
type Deed = fn(&Folder);

fn replace(folder: &Folder) {
    fs::copy(folder.path("Data.fs"), folder.path("other")).unwrap();
    fs::rename(folder.path("other"), folder.path("Data.fs")).unwrap();
}

fn remove(folder: &Folder) {
    fs::remove_file(folder.path("Data.fs")).unwrap();
}

fn cut(folder: &Folder) {
    let file = fs::OpenOptions::new().write(true).open(folder.path("Data.fs")).unwrap();
    file.set_len(file.metadata().unwrap().len() - 3).unwrap();
}

fn write(folder: &Folder) {
    let file = fs::OpenOptions::new().write(true).open(folder.path("Data.fs")).unwrap();
    let end = file.metadata().unwrap().len();
    std::os::unix::fs::FileExt::write_all_at(&file, b"xyz", end).unwrap();
}

const DEEDS: [(&str, Deed); 4] =
    [("replaced", replace), ("removed", remove), ("cut", cut), ("written to", write)];

#[test]
fn a_file_that_another_program_changed_takes_no_commit_and_is_left_as_it_is() {
    for (deed, act) in DEEDS {
        let folder = Folder::new();
        let storage = folder.open("Data.fs").unwrap();
        commit(&storage, stores(tid(2), &[(1, b"two")])).unwrap();
        storage.save_index().unwrap();
        act(&folder);
        let (left, index) = (fs::read(folder.path("Data.fs")).ok(), folder.bytes("Data.fs.index"));
        let length = left.as_ref().map(|bytes| bytes.len() as u64);
        let found = change(commit(&storage, stores(tid(3), &[(1, b"three")])));
        match (deed, found) {
            ("replaced", FileChange::Replaced) | ("removed", FileChange::Removed) => {}
            ("cut" | "written to", FileChange::Length { written, found }) => {
                assert_eq!(Some(found), length, "{deed}");
                assert_eq!(found > written, deed == "written to");
            }
            (deed, found) => panic!("{deed}: {found:?}"),
        }
        assert_eq!(storage.write_state(), WriteState::Changed, "{deed}");
        assert!(matches!(
            commit(&storage, stores(tid(3), &[(1, b"three")])),
            Err(FileStorageError::Failed { .. })
        ));
        assert_eq!(change(storage.reopen()), found, "{deed}");
        assert_eq!(change(storage.close()), found, "{deed}");
        assert_eq!(fs::read(folder.path("Data.fs")).ok(), left, "{deed}");
        assert_eq!(folder.bytes("Data.fs.index"), index, "{deed}");
    }
}

#[test]
fn a_close_without_another_commit_leaves_a_changed_file_as_it_is() {
    for (deed, act) in DEEDS {
        let folder = Folder::new();
        let storage = folder.open("Data.fs").unwrap();
        commit(&storage, stores(tid(2), &[(1, b"two")])).unwrap();
        act(&folder);
        let left = fs::read(folder.path("Data.fs")).ok();
        change(storage.close());
        assert_eq!(fs::read(folder.path("Data.fs")).ok(), left, "{deed}");
    }
}

#[test]
fn a_pack_does_not_take_the_name_from_a_file_that_another_program_put_there() {
    let folder = Folder::new();
    let storage = folder.open("Data.fs").unwrap();
    commit(&storage, stores(tid(2), &[(1, b"two")])).unwrap();
    let cancelled = Arc::new(AtomicBool::new(false));
    let options = PackOptions::new(&cancelled);
    let mut begun = storage.packer().begin(tid(2), &options).unwrap().unwrap();
    fs::write(folder.path("other"), b"another file").unwrap();
    fs::rename(folder.path("other"), folder.path("Data.fs")).unwrap();
    assert_eq!(change(storage.packer().finish(&mut begun)), FileChange::Replaced);
    drop(begun);
    assert_eq!(change(pack(&storage)), FileChange::Replaced);
    assert_eq!(storage.write_state(), WriteState::Changed);
    assert_eq!(folder.bytes("Data.fs"), b"another file");
}

#[test]
fn commits_go_on_once_the_file_is_the_same_again() {
    let folder = Folder::new();
    let storage = folder.open("Data.fs").unwrap();
    commit(&storage, stores(tid(2), &[(1, b"two")])).unwrap();
    let length = fs::metadata(folder.path("Data.fs")).unwrap().len();
    for (number, undone) in [(3, "moved away"), (4, "written to")] {
        match undone {
            "moved away" => fs::rename(folder.path("Data.fs"), folder.path("aside")).unwrap(),
            _ => write(&folder),
        }
        let refused = stores(tid(number), &[(2, b"refused")]);
        change(commit(&storage, refused));
        match undone {
            "moved away" => fs::rename(folder.path("aside"), folder.path("Data.fs")).unwrap(),
            _ => {
                let file = fs::OpenOptions::new().write(true).open(folder.path("Data.fs"));
                file.unwrap().set_len(length).unwrap();
            }
        }
        if number == 3 {
            storage.reopen().unwrap();
        }
    }
    storage.reopen().unwrap();
    commit(&storage, stores(tid(5), &[(1, b"five")])).unwrap();
    storage.close().unwrap();
    drop(storage);
    let (storage, warnings) = count_warnings(|| folder.open("Data.fs").unwrap());
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(storage.reader().load_serial(Oid(1), tid(5)).unwrap().unwrap(), "five");
    assert_eq!(storage.reader().serial_of_living(Oid(2)).unwrap(), None);
}

#[test]
fn a_change_during_the_write_is_noticed_before_the_commit_is_acknowledged() {
    for replaced in [true, false] {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let storage = crate::support::open(disk.clone());
        commit(&storage, stores(tid(1), &[(0, b"root")])).unwrap();
        let files = disk.files().clone();
        disk.before_next(Operation::Sync, move || {
            let path = crate::support::data_file();
            if replaced {
                files.put(path, b"FS30".to_vec());
            } else {
                let file = files.open(path, OpenMode::Write).unwrap();
                file.write_all_at(b"x", file.length().unwrap()).unwrap();
            }
        });
        let found = change(commit(&storage, stores(tid(2), &[(1, b"two")])));
        assert_eq!(found == FileChange::Replaced, replaced, "{found:?}");
        assert_eq!(storage.last_tid(), tid(1));
        change(storage.reopen());
        let left = crate::support::data_of(disk.files());
        change(storage.close());
        assert_eq!(crate::support::data_of(disk.files()), left);
    }
}

#[test]
fn the_file_is_looked_at_twice_for_a_batch() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = crate::support::open(disk.clone());
    commit(&storage, stores(tid(1), &[(0, b"root")])).unwrap();
    let before = disk.count(Operation::Read);
    let batch: Vec<_> = (2..10).map(|n| stores(tid(n), &[(n, b"data")])).collect();
    crate::support::commit_all(&storage, batch).unwrap();
    assert_eq!(disk.count(Operation::Read) - before, 2);
    let missing = Path::new("Missing.fs");
    assert_eq!(disk.status(missing).unwrap(), None);
}
