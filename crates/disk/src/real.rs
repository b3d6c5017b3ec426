//! The real file system.

use std::fs::{File, FileType, Metadata, OpenOptions, Permissions};
use std::io::{self, IoSliceMut, Read};
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    Advice, FallocateFlags, FlockOperation, OFlags, fadvise, fallocate, flock, fstatvfs, major,
    minor, statvfs,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use crate::boot;
use crate::denied::explain_denied;
use crate::folder_sync::sync_folder;
use crate::transfer::{until_answered, write_all};
use crate::{
    ColdBytes, Disk, DiskFile, Entry, EntryKind, FileIdentity, FileLock, FileStatus, LockError,
    OpenMode, folder_of,
};

/// Bytes of a lock file that are read.
const LOCK_BYTES_MAX: u64 = 256;
/// Most attempts to lock a lock file that is replaced meanwhile.
const LOCK_ATTEMPTS_MAX: usize = 10;
const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Longest chain of symbolic links that is followed, as on Linux.
const LINKS_MAX: usize = 40;

/// Files of the operating system.
#[derive(Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn boot(&self) -> Option<u64> {
        boot::last()
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        // Opening it would wait for another process that opens it.
        if std::fs::metadata(path).is_ok_and(|it| it.file_type().is_fifo()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe, and no file"));
        }
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::Write => options.write(true),
            OpenMode::Create => options.write(true).create(true),
            OpenMode::CreateNew => options.write(true).create_new(true),
            OpenMode::Truncate => options.write(true).create(true).truncate(true),
        };
        match options.open(path) {
            Ok(file) => Ok(Arc::new(RealFile::new(file))),
            // So that a data file with a long name is without side files, rather than unreadable.
            Err(error) if is_absent(&error) && matches!(mode, OpenMode::Read | OpenMode::Write) => {
                Err(io::ErrorKind::NotFound.into())
            }
            Err(error) => Err(explain_denied(error, path)),
        }
    }

    fn temporary(&self, near: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let folder = folder_of(near);
        let file = tempfile::tempfile_in(folder).map_err(|error| explain_denied(error, folder))?;
        Ok(Arc::new(RealFile::new(file)))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(if_there(path.try_exists())?.unwrap_or(false))
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        let found = if_there(std::fs::symlink_metadata(path))?;
        Ok(found.map(|metadata| kind_of(metadata.file_type())))
    }

    fn status(&self, path: &Path) -> io::Result<Option<FileStatus>> {
        Ok(if_there(std::fs::metadata(path))?.as_ref().map(status_of))
    }

    fn free_bytes(&self, path: &Path) -> Option<u64> {
        let found = statvfs(path).ok()?;
        found.f_bavail.checked_mul(found.f_frsize)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let entry = |entry: io::Result<std::fs::DirEntry>| {
            let entry = entry?;
            Ok(Entry { name: entry.file_name(), kind: kind_of(entry.file_type()?) })
        };
        std::fs::read_dir(folder)?.map(entry).collect()
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            match std::fs::read_link(&path) {
                Ok(target) => path = folder_of(&path).join(target),
                // The path is no link, or does not exist.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::InvalidInput | io::ErrorKind::NotFound
                    ) =>
                {
                    return Ok(path);
                }
                Err(error) => return Err(error),
            }
        }
        Err(Errno::LOOP.into())
    }

    fn create_folder(&self, path: &Path) -> io::Result<bool> {
        match std::fs::create_dir(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
                Ok(false)
            }
            Err(error) => Err(explain_denied(error, path)),
        }
    }

    fn remove_folder(&self, path: &Path) -> io::Result<bool> {
        match std::fs::remove_dir(path) {
            Ok(()) => Ok(true),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty => Ok(false),
                _ => Err(error),
            },
        }
    }

    fn move_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        let folder = std::fs::metadata(folder_of(path))?.permissions().mode();
        let file = open_no_link(path)?;
        let mode = (file.metadata()?.permissions().mode() & !0o222) | (folder & 0o444);
        file.set_permissions(Permissions::from_mode(mode & 0o7777))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)?;
        self.sync_folder_of(to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn copy_permissions(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.copy_owner(from, to);
        let permissions = std::fs::metadata(from)?.permissions();
        // A file system without permissions may refuse any change of them.
        if std::fs::metadata(to)?.permissions() == permissions {
            return Ok(());
        }
        std::fs::set_permissions(to, permissions)
    }

    fn copy_owner(&self, from: &Path, to: &Path) {
        let Ok(from) = std::fs::metadata(from) else { return };
        let Ok(to) = open_no_link(to) else { return };
        let is_owner = |to: Metadata| (to.uid(), to.gid()) == (from.uid(), from.gid());
        if !rustix::process::geteuid().is_root() || to.metadata().is_ok_and(is_owner) {
            return;
        }
        // A process may be root's and lack the right to do this, as in a container.
        let _ = fchown(&to, Some(from.uid()), Some(from.gid()));
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn sync_folder_of(&self, path: &Path) -> io::Result<()> {
        sync_folder(folder_of(path))
    }

    fn lock(&self, path: &Path) -> Result<FileLock, LockError> {
        for _ in 0..LOCK_ATTEMPTS_MAX {
            let mut file = open_lock_file(path).map_err(LockError::Io)?;
            if !try_flock(&file).map_err(LockError::Io)? {
                return Err(LockError::Held { owner: owner_of(&mut file) });
            }
            if is_named(&file, path).map_err(LockError::Io)? {
                take_over(&mut file).map_err(LockError::Io)?;
                let held = Box::new(RealLock(Arc::new(file)));
                return Ok(FileLock { _held: held });
            }
        }
        Err(LockError::Io(io::Error::other("the lock file was replaced each time it was locked")))
    }
}

#[derive(Debug)]
struct RealFile {
    file: Arc<File>,
    /// Whether the file system does not tell what is in memory. Then a ring may read on the thread
    /// that asks it, and wait for the disk.
    hides_residency: AtomicBool,
}

impl RealFile {
    fn new(file: File) -> RealFile {
        RealFile { file: Arc::new(file), hides_residency: AtomicBool::new(false) }
    }
}

/// The lock on an open file, released when dropped. The file may stay open: here, or in a forked
/// child.
#[derive(Debug)]
struct RealLock(Arc<File>);

impl Drop for RealLock {
    fn drop(&mut self) {
        // If this fails, closing the file releases it.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl DiskFile for RealFile {
    fn status(&self) -> io::Result<FileStatus> {
        Ok(status_of(&self.file.metadata()?))
    }

    fn lock(&self) -> Result<FileLock, LockError> {
        if try_flock(&self.file).map_err(LockError::Io)? {
            return Ok(FileLock { _held: Box::new(RealLock(Arc::clone(&self.file))) });
        }
        Err(LockError::Held { owner: holder_of(&self.file) })
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        until_answered(|| self.file.read_at(buffer, position))
    }

    fn read_resident_at(&self, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>> {
        if self.hides_residency.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut buffers = [IoSliceMut::new(buffer)];
        match preadv2(&self.file, &mut buffers, position, ReadWriteFlags::NOWAIT) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.hides_residency.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn cold_bytes(&self, position: u64, length: usize) -> Option<ColdBytes> {
        let is_told = !self.hides_residency.load(Ordering::Relaxed);
        is_told.then(|| ColdBytes::new(Arc::clone(&self.file), position, length))
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        write_all(|bytes, position| self.file.write_at(bytes, position), bytes, position)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn reserve(&self, start: u64, end: u64) -> io::Result<()> {
        // Linux refuses to reserve nothing.
        let Some(length) = end.checked_sub(start).filter(|length| *length > 0) else {
            return Ok(());
        };
        // Linux reserves space beyond this limit too, and refuses the write. As with a full disk
        // there is no room for what is to be written, and later there may be.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| end > limit) {
            return Err(Errno::NOSPC.into());
        }
        let reserve = || fallocate(&self.file, FallocateFlags::KEEP_SIZE, start, length);
        match retry_on_intr(reserve) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => check_space(&self.file, start, end),
            Err(error) => Err(error.into()),
        }
    }

    fn forget_cached(&self, start: u64) -> io::Result<()> {
        // Without a length the range extends to the end.
        Ok(fadvise(&self.file, start, None, Advice::DontNeed)?)
    }
}

/// Fails if there is no space for what is new in a part of a file, where none can be reserved.
fn check_space(file: &File, start: u64, end: u64) -> io::Result<()> {
    let found = fstatvfs(file)?;
    let new = end.saturating_sub(start.max(file.metadata()?.len()));
    // Some file systems do not know how large they are.
    let is_known = found.f_blocks > 0;
    match is_known && new > found.f_bavail.saturating_mul(found.f_frsize) {
        true => Err(Errno::NOSPC.into()),
        false => Ok(()),
    }
}

/// Whether there is no such file. No file has a name that the file system finds too long.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename)
}

/// What was found; `None` if there is no such file.
fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if is_absent(&error) => Ok(None),
        found => found.map(Some),
    }
}

fn kind_of(file_type: FileType) -> EntryKind {
    if file_type.is_file() {
        EntryKind::File
    } else if file_type.is_dir() {
        EntryKind::Folder
    } else {
        EntryKind::Other
    }
}

fn status_of(metadata: &Metadata) -> FileStatus {
    let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
    let modified = metadata.mtime().saturating_mul(NANOS_PER_SECOND) + metadata.mtime_nsec();
    FileStatus { identity, length: metadata.len(), modified }
}

/// Opens a file to change its owner or permissions. Others may write its folder, and may have put a
/// link to a file that is not theirs in its place: that fails. Nor does it wait for a pipe.
fn open_no_link(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn open_lock_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).map_err(|error| explain_denied(error, path))
}

/// Takes an exclusive lock on an open file; false when another holds it.
fn try_flock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether a path still leads to an open file.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let named = RealDisk.status(path)?;
    Ok(named.map(|named| named.identity) == Some(status_of(&file.metadata()?).identity))
}

/// How often the list of locks is read until it has one that is held.
const LOCKS_READS_MAX: usize = 5;

/// The process that holds a lock on an open file, if the system reports it.
fn holder_of(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    // A read misses lines when other locks come and go meanwhile.
    (0..LOCKS_READS_MAX).find_map(|_| {
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| holder_in(line, &file))
    })
}

/// The process in a line of `/proc/locks`, if the line is about a `flock` on this file:
/// `1: FLOCK  ADVISORY  WRITE 4711 08:01:1835010 0 EOF`.
fn holder_in(line: &str, file: &str) -> Option<u32> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words[..] {
        [_, "FLOCK", _, _, process, of, ..] if of == file => process.parse().ok(),
        _ => None,
    }
}

/// The process id in a lock file, which is its first word; `None` if there is none.
fn owner_of(file: &mut File) -> Option<u32> {
    lock_text(file).split_ascii_whitespace().next()?.parse().ok()
}

/// Writes our process id into the first line of a lock file, and keeps the second line. It is one
/// write, so a crash leaves either the old or the new text.
fn take_over(file: &mut File) -> io::Result<()> {
    let text = lock_text(file);
    let mut new = format!(" {}\n", std::process::id());
    if let Some(second) = text.split_inclusive('\n').nth(1) {
        new.push_str(second);
    }
    file.write_all_at(new.as_bytes(), 0)?;
    file.set_len(new.len() as u64)
}

/// The text of a lock file.
fn lock_text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // An unreadable file counts as empty.
    let _ = file.take(LOCK_BYTES_MAX).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use rustix::process::{Rlimit, setrlimit};

    use super::*;
    use crate::no_space_for;

    #[test]
    fn second_lock_is_refused_with_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Data.fs.lock");
        let first = RealDisk.lock(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!(" {}\n", std::process::id()));
        match RealDisk.lock(&path) {
            Err(LockError::Held { owner }) => assert_eq!(owner, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(first);
        RealDisk.lock(&path).unwrap();
    }

    #[test]
    fn a_file_whose_name_is_too_long_is_absent_and_cannot_be_created() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n".repeat(256));
        assert!(!RealDisk.exists(&path).unwrap());
        assert_eq!(RealDisk.kind(&path).unwrap(), None);
        assert_eq!(RealDisk.status(&path).unwrap(), None);
        let error = |mode| RealDisk.open(&path, mode).unwrap_err().kind();
        assert_eq!(error(OpenMode::Read), io::ErrorKind::NotFound);
        assert_eq!(error(OpenMode::Write), io::ErrorKind::NotFound);
        assert_eq!(error(OpenMode::Create), io::ErrorKind::InvalidFilename);
    }

    #[test]
    fn a_lock_file_that_is_replaced_while_it_is_locked_is_not_relied_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Data.fs.lock");
        let _lock = RealDisk.lock(&path).unwrap();
        let replaced = open_lock_file(&path).unwrap();
        assert!(is_named(&replaced, &path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(!is_named(&replaced, &path).unwrap());
        let _new = RealDisk.lock(&path).unwrap();
        assert!(!is_named(&replaced, &path).unwrap());
        assert!(matches!(RealDisk.lock(&path), Err(LockError::Held { .. })));
    }

    #[test]
    fn a_file_itself_is_locked_under_all_its_names_until_the_lock_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let file = RealDisk.open(&path("f"), OpenMode::CreateNew).unwrap();
        RealDisk.link(&path("f"), &path("hard")).unwrap();
        std::os::unix::fs::symlink("f", path("soft")).unwrap();
        let lock = file.lock().unwrap();
        for name in ["f", "hard", "soft"] {
            let other = RealDisk.open(&path(name), OpenMode::Write).unwrap();
            let Err(LockError::Held { owner }) = other.lock() else { panic!("{name} is locked") };
            assert_eq!(owner, Some(std::process::id()), "{name}");
        }
        drop(lock);
        RealDisk.open(&path("hard"), OpenMode::Write).unwrap().lock().unwrap();
        file.write_all_at(b"still open", 0).unwrap();
    }

    #[test]
    fn lines_of_other_locks_and_files_name_no_holder() {
        let line = "1: FLOCK  ADVISORY  WRITE 4711 08:01:1835010 0 EOF";
        assert_eq!(holder_in(line, "08:01:1835010"), Some(4711));
        assert_eq!(holder_in(line, "08:01:183501"), None);
        assert_eq!(holder_in(&line.replace("FLOCK", "POSIX"), "08:01:1835010"), None);
        assert_eq!(holder_in(&line.replace("4711", "-1"), "08:01:1835010"), None);
        assert_eq!(holder_in("", "08:01:1835010"), None);
    }

    #[test]
    fn a_symbolic_link_is_followed_to_the_file_that_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("second", path("first")).unwrap();
        std::os::unix::fs::symlink(path("file"), path("second")).unwrap();
        let resolved = || RealDisk.resolve(&path("first")).unwrap();
        assert_eq!(resolved(), path("file"), "nothing is there yet");
        std::fs::write(path("file"), b"").unwrap();
        assert_eq!(resolved(), path("file"));
        assert_eq!(RealDisk.resolve(&path("file")).unwrap(), path("file"));
        std::os::unix::fs::symlink("first", path("other")).unwrap();
        std::fs::remove_file(path("second")).unwrap();
        std::os::unix::fs::symlink("other", path("second")).unwrap();
        RealDisk.resolve(&path("first")).unwrap_err();
    }

    #[test]
    fn a_lock_keeps_the_second_line_and_names_the_owner_whatever_else_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Data.fs.lock");
        let ours = format!(" {}\n", std::process::id());
        for (before, after) in [
            ("", ours.clone()),
            (" 123456789012\nzodium 1f\n", format!("{ours}zodium 1f\n")),
            (" 1\nzodium 1f\nmore\n", format!("{ours}zodium 1f\n")),
            ("no newline", ours.clone()),
        ] {
            std::fs::write(&path, before).unwrap();
            let lock = RealDisk.lock(&path).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
            let Err(LockError::Held { owner }) = RealDisk.lock(&path) else { panic!("it is held") };
            assert_eq!(owner, Some(std::process::id()));
            drop(lock);
        }
        std::fs::write(&path, b"\xff 7").unwrap();
        RealDisk.lock(&path).unwrap();
    }

    #[test]
    fn permissions_that_are_the_same_are_not_set() {
        // The system refuses any change of these.
        let (from, to) = (Path::new("/proc/self/stat"), Path::new("/proc/self/status"));
        RealDisk.copy_permissions(from, to).unwrap();
        assert!(
            std::fs::set_permissions(to, std::fs::metadata(to).unwrap().permissions()).is_err()
        );
    }

    #[test]
    fn files_of_root_beside_those_of_another_user_become_its_own() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["model", "new", "other"] {
            std::fs::write(path(name), b"").unwrap();
        }
        std::os::unix::fs::chown(path("model"), Some(65533), Some(65532)).unwrap();
        std::os::unix::fs::symlink(path("other"), path("link")).unwrap();
        RealDisk.copy_permissions(&path("model"), &path("new")).unwrap();
        RealDisk.copy_owner(&path("model"), &path("link"));
        let owner = |name| std::fs::metadata(path(name)).map(|it| (it.uid(), it.gid())).unwrap();
        assert_eq!([owner("new"), owner("other")], [(65533, 65532), owner("link")]);
        assert_ne!(owner("other").0, 65533);
    }

    #[test]
    fn reserving_leaves_the_length_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = RealDisk.open(&folder.path().join("f"), OpenMode::CreateNew).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        file.reserve(3, 1 << 20).unwrap();
        assert_eq!(file.length().unwrap(), 3);
    }

    #[test]
    fn where_nothing_can_be_reserved_the_space_that_is_left_counts() {
        let file = tempfile::tempfile().unwrap();
        check_space(&file, 0, 1).unwrap();
        let error = check_space(&file, 1 << 20, u64::MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        file.set_len(1 << 40).unwrap();
        check_space(&file, 3, 1 << 40).unwrap();
    }

    #[test]
    fn space_beyond_the_limit_of_file_sizes_is_refused() {
        let limit = Rlimit { current: Some(1 << 40), ..getrlimit(Resource::Fsize) };
        setrlimit(Resource::Fsize, limit).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = RealDisk.open(&folder.path().join("f"), OpenMode::CreateNew).unwrap();
        let error = file.reserve((1 << 40) - 10, (1 << 40) + 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(no_space_for(1).contains(&format!("{} bytes for each file", 1_u64 << 40)));
        file.reserve(0, 10).unwrap();
    }

    #[test]
    fn reserving_no_bytes_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let file = RealDisk.open(&folder.path().join("f"), OpenMode::CreateNew).unwrap();
        file.reserve(0, 0).unwrap();
        file.reserve(8, 8).unwrap();
        file.reserve(8, 3).unwrap();
    }

    #[test]
    fn all_names_of_a_file_lead_to_one_identity_until_one_is_given_to_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let status = |name: &str| RealDisk.status(&path(name)).unwrap();
        let file = RealDisk.open(&path("f"), OpenMode::CreateNew).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        RealDisk.link(&path("f"), &path("hard")).unwrap();
        std::os::unix::fs::symlink(path("f"), path("soft")).unwrap();
        let open = file.status().unwrap();
        assert_eq!(open.length, 3);
        assert_eq!([status("f"), status("hard"), status("soft")], [Some(open); 3]);
        std::fs::write(path("other"), b"abc").unwrap();
        RealDisk.move_file(&path("other"), &path("f")).unwrap();
        assert_ne!(status("f").unwrap().identity, open.identity);
        assert_eq!([status("hard"), status("soft")], [Some(open), status("f")]);
        assert_eq!(status("other"), None);
    }

    /// A file of /proc stands for file systems that do not tell what is in memory, as FUSE.
    #[test]
    fn no_ring_reads_where_the_file_system_hides_what_is_in_memory() {
        let file = RealDisk.open(Path::new("/proc/version"), OpenMode::Read).unwrap();
        let mut buffer = [0; 4];
        assert_eq!(file.read_resident_at(&mut buffer, 0).unwrap(), None);
        assert!(file.cold_bytes(0, 4).is_none());
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 4);
    }

    #[test]
    fn bytes_just_written_are_resident() {
        let folder = tempfile::tempdir().unwrap();
        let file = RealDisk.open(&folder.path().join("f"), OpenMode::CreateNew).unwrap();
        file.write_all_at(b"abcdef", 0).unwrap();
        let mut buffer = [0; 16];
        if let Some(count) = file.read_resident_at(&mut buffer, 2).unwrap() {
            assert_eq!(&buffer[..count], b"cdef");
        }
    }

    #[test]
    fn read_only_files_can_be_read_by_users_that_can_read_their_folder() {
        let outer = tempfile::tempdir().unwrap();
        for (folder_mode, expected) in [(0o700, 0o400), (0o755, 0o444), (0o750, 0o440)] {
            let folder = outer.path().join(format!("{folder_mode:o}"));
            assert!(RealDisk.create_folder(&folder).unwrap());
            std::fs::set_permissions(&folder, Permissions::from_mode(folder_mode)).unwrap();
            let path = folder.join("f");
            std::fs::write(&path, b"").unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            RealDisk.set_read_only(&path).unwrap();
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, expected);
        }
    }

    #[test]
    fn links_are_not_followed_and_full_folders_not_removed() {
        let outer = tempfile::tempdir().unwrap();
        let (folder, link) = (outer.path().join("folder"), outer.path().join("folder/link"));
        assert!(RealDisk.create_folder(&folder).unwrap());
        assert!(!RealDisk.create_folder(&folder).unwrap());
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        assert_eq!(RealDisk.kind(&link).unwrap(), Some(EntryKind::Other));
        RealDisk.set_read_only(&link).unwrap_err();
        assert_eq!(RealDisk.kind(&folder).unwrap(), Some(EntryKind::Folder));
        let entry = Entry { name: "link".into(), kind: EntryKind::Other };
        assert_eq!(RealDisk.list(&folder).unwrap(), [entry]);
        assert!(!RealDisk.remove_folder(&folder).unwrap());
        RealDisk.remove(&link).unwrap();
        assert_eq!(RealDisk.kind(&link).unwrap(), None);
        assert!(RealDisk.remove_folder(&folder).unwrap());
        assert!(!RealDisk.remove_folder(&folder).unwrap());
    }
}
