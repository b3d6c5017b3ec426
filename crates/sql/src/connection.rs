//! Connections to a database, and what each is told.
//!
//! Key decision: write-ahead logging with `synchronous = FULL`. A commit is one append to the log
//! and one sync of it, and readers go on. `NORMAL` would sync only at checkpoints: a power cut
//! would take acknowledged transactions.

use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rusqlite::OpenFlags;
use rusqlite::config::DbConfig;
use rustix::fs::Access;
use rustix::io::Errno;
use tracing::warn;

use crate::SqlError;
use crate::driver::{self, Connection, MariaConnection, MariaPurpose};
use crate::place::Place;

/// Pages in the log after which a commit moves them into the file: 16 MiB. Pages that are written
/// often are moved once. More pages would be looked for in two tables of SQLite's index of the log.
const LOG_PAGES: i64 = 4000;
/// A log that has become longer is cut when it begins anew.
const LOG_BYTES: i64 = 64 << 20;
/// How long a statement waits for a lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the log says that another program has a database locked.
const WARNING_PAUSE: Duration = Duration::from_secs(10);
/// Pause before the lock is asked for again. SQLite has waited for it before.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Statements that a connection keeps compiled.
const STATEMENTS: usize = 64;
/// Memory for pages of one connection, in KiB.
const CACHE_KIB: i64 = 8 << 10;
/// The same for the connection that reads single rows of a node: a page that is not there costs a
/// system call.
const ROWS_CACHE_KIB: i64 = 64 << 10;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Writing.
    Write,
    /// Reading beside a writer.
    Read,
    /// Reading single rows, again and again, beside a writer.
    ReadRows,
    /// Reading a database that this process must not change.
    ReadOnly,
    /// Only holding the lock of a database on a server.
    Lock,
}

/// Opens a connection.
pub(crate) fn open(place: &Place, purpose: Purpose) -> Result<Connection, SqlError> {
    let failed = place.cannot("open the database");
    if let Some(server) = place.server() {
        let purpose = match purpose {
            Purpose::Write => MariaPurpose::Write,
            Purpose::Lock => MariaPurpose::Lock,
            Purpose::Read | Purpose::ReadRows | Purpose::ReadOnly => MariaPurpose::Read,
        };
        let connection = MariaConnection::open(server, purpose).map_err(failed)?;
        return Ok(Connection::Maria(Box::new(connection)));
    }
    let access = match purpose {
        Purpose::Write | Purpose::Read | Purpose::ReadRows => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Purpose::ReadOnly | Purpose::Lock => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = match purpose == Purpose::ReadOnly && is_sealed(place.path()) {
        true => {
            let flags = flags | OpenFlags::SQLITE_OPEN_URI;
            rusqlite::Connection::open_with_flags(sealed_uri(place.path()), flags)
        }
        false => rusqlite::Connection::open_with_flags(place.path(), flags),
    };
    let connection = opened.map_err(|error| failed(error.into()))?;
    // SQLite opens a file for reading if it must not write to it, and says nothing.
    if purpose == Purpose::Write && connection.is_readonly("main").is_ok_and(|is_so| is_so) {
        let path = place.path().to_owned();
        return Err(SqlError::NotWritable { path, operation: "open for writing" });
    }
    tell(&connection, purpose).map_err(place.cannot("set up a connection"))?;
    Ok(Connection::Sqlite(connection))
}

/// Whether SQLite could not create the files that it has beside a database, and needs none: none is
/// there. The database is whole then, and no process has it open for writing: it would have them.
fn is_sealed(path: &Path) -> bool {
    // Beside the file to which symbolic links lead.
    let Ok(path) = path.canonicalize() else { return false };
    let is_absent = |end: &str| {
        let mut beside = path.clone().into_os_string();
        beside.push(end);
        std::fs::metadata(beside).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let is_refused = rustix::fs::access(folder, Access::WRITE_OK)
        .is_err_and(|error| matches!(error, Errno::ACCESS | Errno::ROFS));
    is_refused && ["-wal", "-shm", "-journal"].into_iter().all(is_absent)
}

/// Tells SQLite that nothing changes the file.
fn sealed_uri(path: &Path) -> String {
    let path = percent_encode(path.as_os_str().as_bytes(), NON_ALPHANUMERIC);
    format!("file:{path}?immutable=1")
}

fn tell(connection: &rusqlite::Connection, purpose: Purpose) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    if matches!(purpose, Purpose::Read | Purpose::ReadRows) {
        // The writing connection does that. One that reads may lead to a file which has just taken
        // the name of the open one, and is closed at once then.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    }
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without it, SQLite compiles a cached statement again for each new value of a parameter.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    let cache_kib = if purpose == Purpose::ReadRows { ROWS_CACHE_KIB } else { CACHE_KIB };
    connection.pragma_update(None, "cache_size", -cache_kib)?;
    if matches!(purpose, Purpose::Read | Purpose::ReadRows) {
        connection.pragma_update(None, "query_only", true)?;
    }
    Ok(())
}

/// Begins a transaction. It waits for another program that has the database locked, as long as
/// `patience`.
pub(crate) fn begin(
    connection: &Connection,
    place: &Place,
    patience: Duration,
) -> Result<(), SqlError> {
    let started = Instant::now();
    let mut warned: Option<Instant> = None;
    loop {
        let Err(source) = connection.begin() else { return Ok(()) };
        let error = place.error("write", 0, source);
        if !matches!(error, SqlError::Busy { .. }) || started.elapsed() >= patience {
            return Err(error);
        }
        if warned.is_none_or(|warned| warned.elapsed() >= WARNING_PAUSE) {
            warn!(%error, "commits wait for another program");
            warned = Some(Instant::now());
        }
        sleep(BUSY_PAUSE);
    }
}

/// Runs a change as one transaction: all of it, or nothing. Statements stay compiled.
pub(crate) fn in_transaction<T, E>(
    connection: &Connection,
    failed: impl Fn(driver::Error) -> E,
    change: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    connection.begin().map_err(&failed)?;
    in_begun_transaction(connection, failed, change)
}

/// As [`in_transaction`], for a transaction that has begun.
pub(crate) fn in_begun_transaction<T, E>(
    connection: &Connection,
    failed: impl Fn(driver::Error) -> E,
    change: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let done = change().and_then(|result| connection.commit().map(|()| result).map_err(&failed));
    if done.is_err() {
        connection.rollback();
    }
    done
}

/// Has a writing connection log ahead, and sync each commit. A server decides that for itself.
pub(crate) fn make_durable(connection: &Connection) -> driver::Result<()> {
    let Connection::Sqlite(connection) = connection else { return Ok(()) };
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", LOG_PAGES, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    Ok(connection.pragma_update(None, "synchronous", "FULL")?)
}

/// Moves the log into the database file, which is whole without it then. Waits for no reader.
pub(crate) fn checkpoint(connection: &Connection, place: &Place) -> Result<(), SqlError> {
    let Connection::Sqlite(connection) = connection else { return Ok(()) };
    let done = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    done.map_err(place.cannot("move the log into the file"))
}

/// Makes this process the only one that writes to a database on a server.
pub(crate) fn take_over(connection: &Connection) -> driver::Result<()> {
    match connection {
        Connection::Sqlite(_) => Ok(()),
        Connection::Maria(connection) => connection.take_over(RandomState::new().hash_one(())),
    }
}
