//! Keeps a second process from serving a database.
//!
//! The lock is NEO/py's: a name in the abstract namespace of Unix sockets, made of device and inode
//! of the file. So a NEO storage node and this program keep each other away. The kernel drops it
//! with the process.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use crate::SqlError;

/// The lock, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held for its name")] UnixListener);

impl Lock {
    /// Locks the database at `path`, a file that exists.
    pub(crate) fn take(path: &Path) -> Result<Lock, SqlError> {
        let refused =
            |operation| move |source| SqlError::Io { path: path.to_owned(), operation, source };
        let status = std::fs::metadata(path).map_err(refused("look at the file"))?;
        let name = format!("neostorage:{}:{}", status.dev(), status.ino());
        let address = SocketAddr::from_abstract_name(name).map_err(refused("name the lock"))?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Lock(listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(SqlError::InUse { path: path.to_owned() })
            }
            Err(error) => Err(refused("lock the database")(error)),
        }
    }
}
