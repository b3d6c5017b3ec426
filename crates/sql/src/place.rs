//! Where a database is, for errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;

use crate::SqlError;

/// The path of a database. It turns errors of SQLite into errors that name it.
#[derive(Clone, Debug)]
pub(crate) struct Place(Arc<PathBuf>);

impl Place {
    pub(crate) fn new(path: &Path) -> Place {
        Place(Arc::new(path.to_owned()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The bytes that are free on the disk; 0 if that is unknown.
    pub(crate) fn free_bytes(&self) -> u64 {
        let disk = rustix::fs::statvfs(&*self.0);
        disk.map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// For `map_err`: the error of an operation, in words that follow "cannot".
    pub(crate) fn cannot(
        &self,
        operation: &'static str,
    ) -> impl Fn(rusqlite::Error) -> SqlError + '_ {
        move |source| self.error(operation, 0, source)
    }

    /// The error of an operation that writes `bytes`.
    pub(crate) fn error(
        &self,
        operation: &'static str,
        bytes: u64,
        source: rusqlite::Error,
    ) -> SqlError {
        let path = self.0.to_path_buf();
        let code = source.sqlite_error_code();
        match (code, &source) {
            (Some(ErrorCode::DiskFull), _) => SqlError::Full { path, bytes },
            (Some(ErrorCode::NotADatabase), _) => SqlError::NotADatabase { path },
            (Some(ErrorCode::DatabaseCorrupt | ErrorCode::ConstraintViolation), _)
            | (_, rusqlite::Error::InvalidColumnType(..))
            | (_, rusqlite::Error::FromSqlConversionFailure(..))
            | (_, rusqlite::Error::IntegralValueOutOfRange(..)) => {
                SqlError::Damaged { path, operation, source }
            }
            (Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked), _) => {
                SqlError::Busy { path, operation }
            }
            (Some(ErrorCode::ReadOnly), _) => SqlError::NotWritable { path, operation },
            _ => SqlError::Sqlite { path, operation, source },
        }
    }
}
