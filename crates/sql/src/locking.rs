//! Keeps a second process from serving a database.
//!
//! The lock is NEO/py's: a name in the abstract namespace of Unix sockets, made of device and inode
//! of the file. So a NEO storage node and this program keep each other away. The kernel drops it
//! with the process. On a server it is a lock of the server, which its connection takes.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use parking_lot::Mutex;

use crate::SqlError;
use crate::connection::{self, Purpose};
use crate::driver::Connection;
use crate::place::Place;

/// The lock, for as long as it lives.
#[derive(Debug)]
#[expect(dead_code, reason = "held for what they lock")]
pub(crate) enum Lock {
    /// A name that only this process has.
    Name(UnixListener),
    /// The lock of a server. It belongs to a connection: here, if the database is only read.
    Server(Option<Mutex<Connection>>),
}

impl Lock {
    /// Locks a database. A file must exist.
    pub(crate) fn take(place: &Place, is_read_only: bool) -> Result<Lock, SqlError> {
        match place.file() {
            Some(path) => Lock::of_file(path),
            None if is_read_only => {
                let connection = connection::open(place, Purpose::Lock)?;
                Ok(Lock::Server(Some(Mutex::new(connection))))
            }
            // The writing connection takes it.
            None => Ok(Lock::Server(None)),
        }
    }

    fn of_file(path: &Path) -> Result<Lock, SqlError> {
        let refused =
            |operation| move |source| SqlError::Io { path: path.to_owned(), operation, source };
        let status = std::fs::metadata(path).map_err(refused("look at the file"))?;
        let name = format!("neostorage:{}:{}", status.dev(), status.ino());
        let address = SocketAddr::from_abstract_name(name).map_err(refused("name the lock"))?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Lock::Name(listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(SqlError::InUse { path: path.to_owned() })
            }
            Err(error) => Err(refused("lock the database")(error)),
        }
    }
}
