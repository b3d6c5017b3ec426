//! The path of a Unix socket, which one server at a time has: from before it listens to its end.
//!
//! Key decision: a lock file beside the socket keeps others away. A socket that is bound, and not
//! listened on yet, looks like one that a killed process has left. The lock of a process ends with
//! it.

use std::fs::{File, Metadata, Permissions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags, access, fchmod, open};
use rustix::io::Errno;
use tokio::net::{UnixListener, UnixSocket};
use tracing::warn;
use zodium_disk::{folder_of, with_suffix};

/// What follows the path of a socket in that of its lock file.
const LOCK_SUFFIX: &str = ".lock";
/// Attempts to lock a file that is removed each time: by a server that ends.
const LOCK_ATTEMPTS_MAX: usize = 100;

/// The path of a Unix socket, kept from other servers until this is dropped.
#[derive(Debug)]
pub(crate) struct SocketPath {
    path: PathBuf,
    lock_path: PathBuf,
    /// Keeps the lock.
    lock: File,
}

/// A Unix socket that this process created; removed when dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    /// Dropped after the socket is removed.
    path: SocketPath,
    /// Device and inode: another process may have replaced it.
    identity: (u64, u64),
    /// As they were when this was last looked at.
    rights: Rights,
}

/// The mode and the owner of a socket, which operators change after the start.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rights {
    mode: u32,
    user: u32,
    group: u32,
}

impl SocketPath {
    /// Takes a path on which no process listens.
    ///
    /// # Errors
    /// A process listens there, or is about to; or a socket cannot be made.
    pub(crate) fn take(path: &Path) -> io::Result<SocketPath> {
        check_unused(path)?;
        let lock_path = with_suffix(path, LOCK_SUFFIX);
        let lock = lock(&lock_path)?;
        Ok(SocketPath { path: path.to_owned(), lock_path, lock })
    }

    /// Listens. A socket on which no process listens any more is replaced.
    pub(crate) fn listen(self, backlog: u32) -> io::Result<(UnixListener, SocketFile)> {
        // Other programs take no lock.
        if check_unused(&self.path)? {
            std::fs::remove_file(&self.path)?;
        }
        let (listener, made) = listen(&self.path, backlog, None)?;
        let (identity, rights) = (identity(&made), Rights::of(&made));
        Ok((listener, SocketFile { path: self, identity, rights }))
    }

    /// Takes the lock again if its file was removed, with which the lock is gone.
    fn keep_locked(&mut self) -> io::Result<()> {
        if !self.has_lock_file() {
            self.lock = lock(&self.lock_path)?;
        }
        Ok(())
    }

    /// Whether the lock file is still the one that is locked: it may be removed, and another
    /// server may have made its own.
    fn has_lock_file(&self) -> bool {
        let Ok(locked) = self.lock.metadata() else { return false };
        identity_of(&self.lock_path).is_ok_and(|named| named == identity(&locked))
    }
}

impl SocketFile {
    /// Listens again if another program has removed the socket: no client finds it any more. A file
    /// that has its path now stays.
    pub(crate) fn listen_again(&mut self, backlog: u32) -> io::Result<Option<UnixListener>> {
        match std::fs::symlink_metadata(&self.path.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(named) if identity(&named) == self.identity => {
                self.rights = Rights::of(&named);
                return Ok(None);
            }
            _ => return Ok(None),
        }
        self.path.keep_locked()?;
        let (listener, made) = listen(&self.path.path, backlog, Some(self.rights))?;
        self.identity = identity(&made);
        Ok(Some(listener))
    }
}

/// Binds a path, and listens, with rights other than those of new files if they are given.
fn listen(
    path: &Path,
    backlog: u32,
    rights: Option<Rights>,
) -> io::Result<(UnixListener, Metadata)> {
    let socket = UnixSocket::new_stream()?;
    if let Some(rights) = rights {
        // The file is made with these at most, whatever becomes of what follows.
        let _ = fchmod(&socket, Mode::from_raw_mode(rights.mode));
    }
    socket.bind(path)?;
    let made = std::fs::symlink_metadata(path)?;
    // No client can connect before it is listened on.
    if let Some(rights) = rights.filter(|rights| *rights != Rights::of(&made))
        && let Err(error) = rights.set(path, &made)
    {
        warn!(path = %path.display(), %error, mode = format!("{:o}", rights.mode),
            user = rights.user, group = rights.group,
            "the socket that is made again cannot have its mode and owner of before: set them");
    }
    Ok((socket.listen(backlog)?, made))
}

impl Rights {
    fn of(metadata: &Metadata) -> Rights {
        let mode = metadata.mode() & 0o7777;
        Rights { mode, user: metadata.uid(), group: metadata.gid() }
    }

    /// Gives a socket these rights, unless its path leads elsewhere by now.
    fn set(self, path: &Path, made: &Metadata) -> io::Result<()> {
        let file = File::from(open(
            path,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?);
        if identity(&file.metadata()?) != identity(made) {
            return Err(io::Error::other("another program has replaced it"));
        }
        // A descriptor without rights to read cannot be changed but by this name.
        let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
        chown(&opened, Some(self.user), Some(self.group))?;
        std::fs::set_permissions(&opened, Permissions::from_mode(self.mode))
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        // While it is locked: a server that locks the removed file notices that.
        if self.has_lock_file() {
            let _ = std::fs::remove_file(&self.lock_path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let path = &self.path.path;
        if identity_of(path).is_ok_and(|identity| identity == self.identity) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Locks a file, which is created if it is missing, and never written to.
fn lock(path: &Path) -> io::Result<File> {
    let failed = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot lock {}: {error}", path.display()))
    };
    for _ in 0..LOCK_ATTEMPTS_MAX {
        // Writable, or NFS gives no exclusive lock; and without waiting, as a pipe would have it.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        // A user that can read a file can lock it.
        let opened = open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        let file = File::from(opened.map_err(|error| failed(error.into()))?);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let what = format!("another server has locked {}", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
            }
            Err(TryLockError::Error(error)) if has_no_locks(&error) => {
                warn!(path = %path.display(), %error, "no file can be locked here: a second server \
                    that starts at once could take the socket");
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let locked = file.metadata()?;
        // It is removed at the end: one that holds anything belongs to another program.
        if !locked.is_file() || locked.len() > 0 {
            let what = format!("{} is in the way, and is no lock file", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        if identity_of(path).is_ok_and(|named| named == identity(&locked)) {
            return Ok(file);
        }
    }
    Err(failed(io::Error::other("it was removed each time")))
}

/// Whether a file system has no locks.
fn has_no_locks(error: &io::Error) -> bool {
    let none = [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK];
    none.iter().any(|none| error.raw_os_error() == Some(none.raw_os_error()))
}

fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    Ok(identity(&std::fs::symlink_metadata(path)?))
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Whether there is a socket on which no process listens any more.
///
/// # Errors
/// A process listens there, or a socket cannot be made.
fn check_unused(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Before storages are opened for it.
            std::os::unix::net::SocketAddr::from_pathname(path)?;
            access(folder_of(path), Access::WRITE_OK | Access::EXEC_OK)?;
            Ok(false)
        }
        Err(error) => Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file that is not a socket is in the way",
        )),
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => Ok(true),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(path: &Path) -> io::Result<()> {
        std::os::unix::net::UnixStream::connect(path).map(drop)
    }

    fn refused(path: &Path) -> io::ErrorKind {
        SocketPath::take(path).map(drop).unwrap_err().kind()
    }

    #[tokio::test]
    async fn a_path_is_kept_from_others_before_it_is_listened_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeo.sock");
        let first = SocketPath::take(&path).unwrap();
        assert_eq!(refused(&path), io::ErrorKind::AddrInUse);
        // As one that a killed server has left.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert_eq!(refused(&path), io::ErrorKind::AddrInUse);
        let first = first.listen(1).unwrap();
        connect(&path).unwrap();
        assert_eq!(refused(&path), io::ErrorKind::AddrInUse);
        drop(first);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        SocketPath::take(&path).unwrap();
    }

    #[tokio::test]
    async fn what_a_killed_server_has_left_keeps_no_server_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeo.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        std::fs::write(with_suffix(&path, LOCK_SUFFIX), "").unwrap();
        let _listening = SocketPath::take(&path).unwrap().listen(1).unwrap();
        connect(&path).unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("zeo.sock"), folder.path().join("other"));
        std::os::unix::fs::symlink(&other, with_suffix(&path, LOCK_SUFFIX)).unwrap();
        let error = SocketPath::take(&path).unwrap_err().to_string();
        assert!(error.contains("zeo.sock.lock"), "{error}");
        assert!(!other.exists());
    }

    #[test]
    fn a_file_of_another_program_is_not_taken_for_a_lock_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeo.sock");
        let other = with_suffix(&path, LOCK_SUFFIX);
        std::fs::write(&other, "data").unwrap();
        assert_eq!(refused(&path), io::ErrorKind::AlreadyExists);
        assert!(other.exists());
    }

    #[test]
    fn a_pipe_in_the_place_of_the_lock_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeo.sock");
        let pipe = with_suffix(&path, LOCK_SUFFIX);
        assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
        assert_eq!(refused(&path), io::ErrorKind::AlreadyExists);
    }

    #[tokio::test]
    async fn the_socket_of_another_process_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeo.sock");
        let ours = SocketPath::take(&path).unwrap().listen(1).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(ours);
        connect(&path).unwrap();
    }

    #[tokio::test]
    async fn a_socket_that_was_removed_is_made_again_and_kept_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeo.sock");
        let (listener, mut file) = SocketPath::take(&path).unwrap().listen(1).unwrap();
        assert!(file.listen_again(1).unwrap().is_none(), "it is there");
        let mut listeners = vec![listener];
        for removes_lock in [false, true] {
            std::fs::remove_file(&path).unwrap();
            if removes_lock {
                std::fs::remove_file(with_suffix(&path, LOCK_SUFFIX)).unwrap();
            }
            listeners.push(file.listen_again(1).unwrap().unwrap());
            connect(&path).unwrap();
            assert_eq!(refused(&path), io::ErrorKind::AddrInUse);
        }
        std::fs::remove_file(&path).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(file.listen_again(1).unwrap().is_none(), "another process has it");
        drop(file);
        connect(&path).unwrap();
    }

    #[tokio::test]
    async fn a_socket_that_is_made_again_has_the_mode_it_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeo.sock");
        let (_listener, mut file) = SocketPath::take(&path).unwrap().listen(1).unwrap();
        for mode in [0o666, 0o600] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(file.listen_again(1).unwrap().is_none(), "it is there");
            std::fs::remove_file(&path).unwrap();
            let _listener = file.listen_again(1).unwrap().unwrap();
            let made = Rights::of(&std::fs::symlink_metadata(&path).unwrap());
            assert_eq!((made, made.mode), (file.rights, mode));
            connect(&path).unwrap();
        }
    }

    #[tokio::test]
    async fn the_lock_file_of_another_server_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeo.sock");
        let first = SocketPath::take(&path).unwrap().listen(1).unwrap();
        for name in std::fs::read_dir(folder.path()).unwrap() {
            std::fs::remove_file(name.unwrap().path()).unwrap();
        }
        let _second = SocketPath::take(&path).unwrap().listen(1).unwrap();
        drop(first);
        assert!(with_suffix(&path, LOCK_SUFFIX).exists());
        assert_eq!(refused(&path), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_path_that_can_have_no_socket_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let long = "s".repeat(150);
        for (name, kind) in
            [("missing/zeo.sock", io::ErrorKind::NotFound), (&*long, io::ErrorKind::InvalidInput)]
        {
            assert_eq!(refused(&folder.path().join(name)), kind);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
