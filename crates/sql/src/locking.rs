//! Keeps a second process from serving a database.
//!
//! The lock is NEO/py's: a name in the abstract namespace of Unix sockets, made of device and inode
//! of the file. So a NEO storage node and this program keep each other away. The kernel drops it
//! with the process. On a server it is a lock of the server, which its connection takes.
//!
//! No lock stops `mv`, `rm` or a restore. A commit after such a change would be lost at the stop.
//! So each looks whether the path still leads to the locked file.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use zodium_disk::{Disk, FileIdentity, RealDisk};

use crate::SqlError;
use crate::connection::{self, Purpose};
use crate::driver::Connection;
use crate::place::Place;

/// The lock, for as long as it lives.
#[derive(Debug)]
pub(crate) enum Lock {
    /// A name that only this process has, and the file that it stands for.
    Name { _held: UnixListener, path: PathBuf, identity: FileIdentity },
    /// The lock of a server. It belongs to a connection: here, if the database is only read.
    Server { _held: Option<Mutex<Connection>> },
}

impl Lock {
    /// Locks a database. A file must exist.
    pub(crate) fn take(place: &Place, is_read_only: bool) -> Result<Lock, SqlError> {
        match place.file() {
            Some(path) => Lock::of_file(path),
            None if is_read_only => {
                let connection = connection::open(place, Purpose::Lock)?;
                Ok(Lock::Server { _held: Some(Mutex::new(connection)) })
            }
            // The writing connection takes it.
            None => Ok(Lock::Server { _held: None }),
        }
    }

    /// Checks before a commit that the path still leads to the file that is open.
    ///
    /// # Errors
    /// [`SqlError::Changed`].
    pub(crate) fn check_file(&self) -> Result<(), SqlError> {
        let Lock::Name { path, identity, .. } = self else { return Ok(()) };
        match identity_of(path)? {
            Some(found) if found == *identity => Ok(()),
            _ => Err(SqlError::Changed { path: path.clone() }),
        }
    }

    fn of_file(path: &Path) -> Result<Lock, SqlError> {
        let refused =
            |operation| move |source| SqlError::Io { path: path.to_owned(), operation, source };
        let identity = identity_of(path)?;
        let identity = identity.ok_or_else(|| SqlError::Missing { path: path.to_owned() })?;
        let name = format!("neostorage:{}:{}", identity.device, identity.inode);
        let address = SocketAddr::from_abstract_name(name).map_err(refused("name the lock"))?;
        match UnixListener::bind_addr(&address) {
            Ok(_held) => Ok(Lock::Name { _held, path: path.to_owned(), identity }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(SqlError::InUse { path: path.to_owned() })
            }
            Err(error) => Err(refused("lock the database")(error)),
        }
    }
}

fn identity_of(path: &Path) -> Result<Option<FileIdentity>, SqlError> {
    let refused = |source| {
        let (path, operation) = (path.to_owned(), "look at the file");
        SqlError::Io { path, operation, source }
    };
    Ok(RealDisk.status(path).map_err(refused)?.map(|status| status.identity))
}
