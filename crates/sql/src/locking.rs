//! Keeps a second process from serving a database.
//!
//! The lock is NEO/py's: a name in the abstract namespace of Unix sockets, made of device and inode
//! of the file. So a NEO storage node and this program keep each other away. The kernel drops it
//! with the process. On a server it is a lock of the server, which its connection takes.
//!
//! No lock stops `mv`, `rm` or a restore. A commit after such a change would be lost at the stop.
//! So each looks whether the path still leads to the locked file, and whether the log beside it is
//! the one that is written. SQLite itself never replaces the log of an open database: it deletes
//! the log with the last connection, and begins it anew in the same file.
//!
//! SQLite finds a log by its name alone. A log that stays beside another file than its own would be
//! applied to that one, and destroy it. So the log of a file that has lost its name is renamed when
//! the database is closed. It may hold what no other file has, so it is not removed. Until then it
//! is locked as the file is: a server of the file that has taken the place would write to it too.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tracing::{error, warn};
use zodium_disk::{Disk, FileIdentity, RealDisk};

use crate::SqlError;
use crate::connection::{self, Purpose};
use crate::driver::Connection;
use crate::place::Place;

/// The end of the name of a log that is set aside.
const ASIDE: &str = "-wal.replaced";

/// The lock, for as long as it lives.
#[derive(Debug)]
pub(crate) enum Lock {
    /// A name that only this process has, the file that it stands for, and the log of the file,
    /// once that is known.
    Name { _held: UnixListener, path: PathBuf, identity: FileIdentity, log: Option<Log> },
    /// The lock of a server. It belongs to a connection: here, if the database is only read.
    Server { _held: Option<Mutex<Connection>> },
}

/// The log of an open file.
#[derive(Debug)]
pub(crate) struct Log {
    /// Where the file was when it was opened, without symbolic links.
    database: PathBuf,
    identity: FileIdentity,
    _held: UnixListener,
}

impl Lock {
    /// Locks a database. A file must exist. No log beside it may be in use: only the server of an
    /// earlier file under its name can have it open.
    pub(crate) fn take(place: &Place, is_read_only: bool) -> Result<Lock, SqlError> {
        match place.file() {
            Some(path) => {
                let lock = Lock::of_file(path)?;
                // Held only from `note_log` on: until then SQLite may remove the log, and another
                // file may get its number.
                lock_log(path, &canonical(path)?).map(drop)?;
                Ok(lock)
            }
            None if is_read_only => {
                let connection = connection::open(place, Purpose::Lock)?;
                Ok(Lock::Server { _held: Some(Mutex::new(connection)) })
            }
            // The writing connection takes it.
            None => Ok(Lock::Server { _held: None }),
        }
    }

    /// Notes which file the log is, and locks it. A connection has opened it before.
    pub(crate) fn note_log(&mut self) -> Result<(), SqlError> {
        let Lock::Name { path, log, .. } = self else { return Ok(()) };
        let database = canonical(path)?;
        for log in logs_aside(&database) {
            warn!(database = %path.display(), log = %log.display(),
                "there is the log of an earlier file, which was replaced while it was open. Delete \
                 it only once nothing in it is missed");
        }
        let found = lock_log(path, &database)?;
        *log = found.map(|(identity, _held)| Log { database, identity, _held });
        Ok(())
    }

    /// Checks before a commit that the path still leads to the file that is open, and the path of
    /// the log to the open log.
    ///
    /// # Errors
    /// [`SqlError::Changed`], [`SqlError::LogChanged`].
    pub(crate) fn check_files(&self) -> Result<(), SqlError> {
        let Lock::Name { path, identity, log, .. } = self else { return Ok(()) };
        if identity_of(path)? != Some(*identity) {
            return Err(SqlError::Changed { path: path.clone() });
        }
        let Some(log) = log else { return Ok(()) };
        let path = beside(&canonical(path)?, "-wal");
        match identity_of(&path)? {
            Some(found) if found == log.identity => Ok(()),
            _ => Err(SqlError::LogChanged { path }),
        }
    }

    /// Renames the log of a file that has lost its name, so that another file that is put in the
    /// place opens without it. Connections that are open go on with it. To be called at the end.
    ///
    /// # Errors
    /// [`SqlError::LogSetAside`] if that was so.
    pub(crate) fn set_log_aside(&self) -> Result<(), SqlError> {
        let Lock::Name { path, identity, log: Some(log), .. } = self else { return Ok(()) };
        // A symbolic link may lead to another file now.
        let is_beside_it = identity_of(&log.database)? == Some(*identity);
        let name = beside(&log.database, "-wal");
        // It may have been moved with its file.
        if is_beside_it || identity_of(&name)? != Some(log.identity) {
            return Ok(());
        }
        let refused = |source| SqlError::LogLeft { path: path.clone(), log: name.clone(), source };
        let aside = name_aside(&log.database).map_err(refused)?;
        RealDisk.move_file(&name, &aside).map_err(refused)?;
        error!(database = %path.display(), log = %aside.display(),
            "the database was removed, renamed or replaced while it was open: renamed its log");
        // SQLite makes an index for each log, unless another process has the old one open.
        let index = beside(&log.database, "-shm");
        let removed = RealDisk.remove(&index).and_then(|()| RealDisk.sync_folder_of(&aside));
        if let Err(error) = removed {
            warn!(%error, index = %index.display(),
                "the index of the log may still be there: remove it");
        }
        Err(SqlError::LogSetAside { path: path.clone(), log: aside })
    }

    /// Which file is open; `None` on a server.
    pub(crate) fn identity(&self) -> Option<FileIdentity> {
        match self {
            Lock::Name { identity, .. } => Some(*identity),
            Lock::Server { .. } => None,
        }
    }

    /// The bytes of the log; 0 on a server.
    pub(crate) fn log_bytes(&self) -> u64 {
        let Lock::Name { path, .. } = self else { return 0 };
        let Ok(database) = canonical(path) else { return 0 };
        let status = RealDisk.status(&beside(&database, "-wal")).ok().flatten();
        status.map_or(0, |status| status.length)
    }

    fn of_file(path: &Path) -> Result<Lock, SqlError> {
        let identity = identity_of(path)?;
        let identity = identity.ok_or_else(|| SqlError::Missing { path: path.to_owned() })?;
        match take_name("neostorage", identity, path)? {
            Some(_held) => Ok(Lock::Name { _held, path: path.to_owned(), identity, log: None }),
            None => Err(SqlError::InUse { path: path.to_owned() }),
        }
    }
}

/// Locks the log of a database, if there is one.
fn lock_log(
    path: &Path,
    database: &Path,
) -> Result<Option<(FileIdentity, UnixListener)>, SqlError> {
    let log = beside(database, "-wal");
    let Some(identity) = identity_of(&log)? else { return Ok(None) };
    match take_name("zodium-log", identity, &log)? {
        Some(held) => Ok(Some((identity, held))),
        None => Err(SqlError::LogInUse { path: path.to_owned(), log }),
    }
}

/// Takes the name that stands for a file; `None` if another process has it.
fn take_name(
    prefix: &str,
    identity: FileIdentity,
    path: &Path,
) -> Result<Option<UnixListener>, SqlError> {
    let refused =
        |operation| move |source| SqlError::Io { path: path.to_owned(), operation, source };
    let name = format!("{prefix}:{}:{}", identity.device, identity.inode);
    let address = SocketAddr::from_abstract_name(name).map_err(refused("name the lock"))?;
    match UnixListener::bind_addr(&address) {
        Ok(held) => Ok(Some(held)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(refused("lock the database")(error)),
    }
}

/// Which file a path leads to.
pub(crate) fn identity_of(path: &Path) -> Result<Option<FileIdentity>, SqlError> {
    let status = RealDisk.status(path).map_err(|source| cannot_look(path, source))?;
    Ok(status.map(|status| status.identity))
}

/// The path without symbolic links: SQLite has its other files beside that one.
fn canonical(path: &Path) -> Result<PathBuf, SqlError> {
    path.canonicalize().map_err(|source| cannot_look(path, source))
}

fn beside(database: &Path, end: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// A name for a log that is set aside, which no file has.
fn name_aside(database: &Path) -> io::Result<PathBuf> {
    let mut name = beside(database, ASIDE);
    let mut number = 1;
    while RealDisk.exists(&name)? {
        name = beside(database, &format!("{ASIDE}.{number}"));
        number += 1;
    }
    Ok(name)
}

/// The logs that were set aside, as [`name_aside`] names them.
fn logs_aside(database: &Path) -> Vec<PathBuf> {
    let Some(folder) = database.parent() else { return Vec::new() };
    let first = beside(database, ASIDE);
    let entries = RealDisk.list(folder).unwrap_or_default();
    let paths = entries.into_iter().map(|entry| folder.join(entry.name));
    let mut logs: Vec<PathBuf> = paths
        .filter(|path| {
            let rest = path.as_os_str().as_bytes().strip_prefix(first.as_os_str().as_bytes());
            rest.is_some_and(|rest| match rest {
                [] => true,
                [b'.', number @ ..] => {
                    !number.is_empty() && number.iter().all(|digit| digit.is_ascii_digit())
                }
                _ => false,
            })
        })
        .collect();
    logs.sort();
    logs
}

fn cannot_look(path: &Path, source: io::Error) -> SqlError {
    SqlError::Io { path: path.to_owned(), operation: "look at the file", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_logs_that_were_set_aside_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("neo.sqlite");
        for name in [
            "neo.sqlite-wal.replaced.12",
            "neo.sqlite-wal.replaced",
            "neo.sqlite-wal.replaced.",
            "neo.sqlite-wal.replaced.old",
            "neo.sqlite-wal",
            "other.sqlite-wal.replaced",
        ] {
            std::fs::write(folder.path().join(name), b"").unwrap();
        }
        assert_eq!(name_aside(&database).unwrap(), beside(&database, "-wal.replaced.1"));
        let ends = ["-wal.replaced", "-wal.replaced.12"];
        assert_eq!(logs_aside(&database), ends.map(|end| beside(&database, end)));
        assert_eq!(logs_aside(Path::new("/")), [] as [PathBuf; 0]);
    }
}
