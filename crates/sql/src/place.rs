//! Where a database is, for connections and for errors.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;

use crate::SqlError;
use crate::driver::{Error, MariaAddress, MariaServer};

/// Where a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file of SQLite.
    Sqlite(PathBuf),
    /// A database on a MariaDB server.
    Maria(MariaAddress),
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Location {
        Location::Sqlite(path)
    }
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Location {
        Location::Sqlite(path.to_owned())
    }
}

/// The path, or the address without its password.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Sqlite(path) => path.display().fmt(f),
            Location::Maria(address) => address.fmt(f),
        }
    }
}

/// Errors of SQLite and of servers become errors that name the database.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The path, or the address of the database on its server.
    shown: Arc<PathBuf>,
    server: Option<Arc<MariaServer>>,
}

impl Place {
    pub(crate) fn new(location: &Location) -> Place {
        match location {
            Location::Sqlite(path) => Place { shown: Arc::new(path.clone()), server: None },
            Location::Maria(address) => Place {
                shown: Arc::new(address.to_string().into()),
                server: Some(Arc::new(MariaServer::new(address.clone()))),
            },
        }
    }

    /// The path of a file, or the address of a database, as errors show it.
    pub(crate) fn path(&self) -> &Path {
        &self.shown
    }

    /// The file; `None` on a server.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.server.is_none().then(|| &**self.shown)
    }

    /// The server; `None` for a file.
    pub(crate) fn server(&self) -> Option<&Arc<MariaServer>> {
        self.server.as_ref()
    }

    /// The bytes that are free on the disk; 0 if that is unknown, as for a server.
    pub(crate) fn free_bytes(&self) -> u64 {
        let disk = self.file().and_then(|file| rustix::fs::statvfs(file).ok());
        disk.map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Where data of large transactions are until their vote: beside the file, or in the folder of
    /// temporary files.
    pub(crate) fn spool(&self) -> PathBuf {
        match self.file() {
            Some(file) => file.to_owned(),
            None => std::env::temp_dir().join("zodium-transaction"),
        }
    }

    /// For `map_err`: the error of an operation, in words that follow "cannot".
    pub(crate) fn cannot<E: Into<Error>>(
        &self,
        operation: &'static str,
    ) -> impl Fn(E) -> SqlError + '_ {
        move |source| self.error(operation, 0, source.into())
    }

    /// The error of an operation that writes `bytes`.
    pub(crate) fn error(&self, operation: &'static str, bytes: u64, source: Error) -> SqlError {
        let path = self.shown.to_path_buf();
        match self.kind(&source) {
            Kind::Full => SqlError::Full { path, bytes },
            Kind::NotADatabase => SqlError::NotADatabase { path },
            Kind::Damaged => SqlError::Damaged { path, operation, source },
            Kind::Busy => SqlError::Busy { path, operation },
            Kind::ReadOnly if self.server.is_some() => SqlError::ServerReadOnly { path, operation },
            Kind::ReadOnly => SqlError::NotWritable { path, operation },
            Kind::Locked => SqlError::InUse { path },
            Kind::TakenOver => SqlError::TakenOver { path },
            Kind::Other => SqlError::Refused { path, operation, reason: source },
        }
    }

    fn kind(&self, error: &Error) -> Kind {
        match error {
            Error::Sqlite(error) => sqlite_kind(error),
            Error::Server(error) => server_kind(error),
            Error::NoRow | Error::Column(_) => Kind::Damaged,
            Error::Locked => Kind::Locked,
            Error::TakenOver => Kind::TakenOver,
            Error::Settings(_) => Kind::Other,
        }
    }
}

/// What an error is about.
enum Kind {
    Full,
    NotADatabase,
    Damaged,
    Busy,
    ReadOnly,
    Locked,
    TakenOver,
    Other,
}

fn sqlite_kind(error: &rusqlite::Error) -> Kind {
    match (error.sqlite_error_code(), error) {
        (Some(ErrorCode::DiskFull), _) => Kind::Full,
        (Some(ErrorCode::NotADatabase), _) => Kind::NotADatabase,
        (Some(ErrorCode::DatabaseCorrupt | ErrorCode::ConstraintViolation), _)
        | (_, rusqlite::Error::InvalidColumnType(..))
        | (_, rusqlite::Error::FromSqlConversionFailure(..))
        | (_, rusqlite::Error::IntegralValueOutOfRange(..)) => Kind::Damaged,
        (Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked), _) => Kind::Busy,
        (Some(ErrorCode::ReadOnly), _) => Kind::ReadOnly,
        _ => Kind::Other,
    }
}

/// By the numbers of MariaDB's errors.
fn server_kind(error: &mysql::Error) -> Kind {
    let mysql::Error::MySqlError(error) = error else { return Kind::Other };
    match error.code {
        // The disk, or the table.
        1021 | 1114 => Kind::Full,
        // Two rows with one key; a crashed table.
        1062 | 1034 | 1194 | 1712 => Kind::Damaged,
        // --read-only, a transaction that only reads.
        1290 | 1792 | 1836 => Kind::ReadOnly,
        _ => Kind::Other,
    }
}
