//! Why a statement failed.

use mysql::DriverError;
use thiserror::Error as ThisError;

/// The outcome of a statement.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a statement failed. Public only as the source of a [`crate::SqlError`].
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// SQLite refused it.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The server refused it, or cannot be reached.
    #[error("{}", shown(.0))]
    Server(Box<mysql::Error>),
    /// A query for one row has none.
    #[error("the query has no row")]
    NoRow,
    /// A column has no value of the expected type.
    #[error("column {0} of a row has a value of an unexpected type")]
    Column(usize),
    /// Another process holds the lock of the database.
    #[error("another process has locked the database")]
    Locked,
    /// Another process has taken the database over.
    #[error("another process has taken the database over")]
    TakenOver,
    /// The server's settings do not do.
    #[error("{0}")]
    Settings(String),
}

impl Error {
    /// Whether the server may take the statement at another time.
    pub(crate) fn may_pass(&self) -> bool {
        super::maria::may_pass(self)
    }
}

/// The text of an error, without the statement and its values.
fn shown(error: &mysql::Error) -> String {
    if let Some(text) = super::maria::tls_shown(error) {
        return text;
    }
    match error {
        mysql::Error::MySqlError(error) => format!("error {}: {}", error.code, error.message),
        mysql::Error::IoError(error) => format!("lost the connection: {error}"),
        mysql::Error::CodecError(error) => format!("lost the connection: {error}"),
        mysql::Error::DriverError(DriverError::CouldNotConnect(Some((address, reason, _)))) => {
            format!("cannot connect to {address}: {reason}; is the server running there?")
        }
        mysql::Error::FromValueError(_) | mysql::Error::FromRowError(_) => {
            "a row has values of unexpected types".to_owned()
        }
        other => other.to_string(),
    }
}

impl From<mysql::Error> for Error {
    fn from(error: mysql::Error) -> Error {
        Error::Server(Box::new(error))
    }
}

/// Turns the absence of a row into `None`.
pub(crate) trait Optional<T> {
    /// `None` if there was no row.
    fn optional(self) -> Result<Option<T>>;
}

impl<T> Optional<T> for Result<T> {
    fn optional(self) -> Result<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(Error::NoRow | Error::Sqlite(rusqlite::Error::QueryReturnedNoRows)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
