//! The seam between NEO's tables and the program that keeps them: SQLite, or a MariaDB server.
//!
//! The rest of the crate runs statements through [`Connection`]. Its calls are those of rusqlite,
//! so SQLite is called at once: statements stay compiled, and columns keep their types.
//!
//! Key decision: both have the same statements, with numbered parameters (`?1`). Where the dialects
//! differ, the function that has the statement chooses one ([`Connection::choose`]). Comments such
//! as `/*!FORCE INDEX (PRIMARY)*/` are read by MariaDB only, which may choose a worse index. What
//! it needs besides (reconnecting, repeating transactions) is below this seam, in `maria`.

mod error;
mod maria;
mod parameter;
mod row;
mod statement;

pub use error::Error;
pub(crate) use error::{Optional, Result};
pub use maria::{MariaAddress, MariaAddressError, MariaEngine};
pub(crate) use maria::{MariaConnection, MariaPurpose, MariaServer};
pub(crate) use parameter::{Parameter, Params, params};
pub(crate) use row::{Row, Rows};
pub(crate) use statement::Statement;

/// A connection to a database.
#[derive(Debug)]
pub(crate) enum Connection {
    Sqlite(rusqlite::Connection),
    Maria(Box<MariaConnection>),
}

impl Connection {
    /// A statement that stays compiled.
    pub(crate) fn prepare_cached(&self, sql: &str) -> Result<Statement<'_>> {
        Ok(match self {
            Connection::Sqlite(connection) => Statement::Cached(connection.prepare_cached(sql)?),
            Connection::Maria(connection) => {
                Statement::Maria(connection, connection.translated(sql))
            }
        })
    }

    /// A statement that is run once.
    pub(crate) fn prepare(&self, sql: &str) -> Result<Statement<'_>> {
        Ok(match self {
            Connection::Sqlite(connection) => Statement::Once(connection.prepare(sql)?),
            Connection::Maria(_) => self.prepare_cached(sql)?,
        })
    }

    /// Runs a statement that gives no rows; the number of rows that it changed.
    pub(crate) fn execute(&self, sql: &str, parameters: impl Params) -> Result<usize> {
        self.prepare(sql)?.execute(parameters)
    }

    /// The only row of a query.
    pub(crate) fn query_row<T>(
        &self,
        sql: &str,
        parameters: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        self.prepare(sql)?.query_row(parameters, read)
    }

    /// The text for the dialect of this connection.
    pub(crate) fn choose<T>(&self, sqlite: T, maria: T) -> T {
        match self {
            Connection::Sqlite(_) => sqlite,
            Connection::Maria(_) => maria,
        }
    }

    /// Begins a transaction that writes.
    pub(crate) fn begin(&self) -> Result<()> {
        match self {
            Connection::Sqlite(connection) => run(connection, "BEGIN IMMEDIATE"),
            Connection::Maria(connection) => connection.begin(),
        }
    }

    /// Commits the transaction.
    pub(crate) fn commit(&self) -> Result<()> {
        match self {
            Connection::Sqlite(connection) => run(connection, "COMMIT"),
            Connection::Maria(connection) => connection.commit(),
        }
    }

    /// Ends the transaction without effect, if there is one.
    pub(crate) fn rollback(&self) {
        // The error that led here says what is wrong. A connection that cannot roll back fails at
        // its next transaction.
        match self {
            // After some errors SQLite has ended the transaction itself.
            Connection::Sqlite(connection) if !connection.is_autocommit() => {
                let _ = run(connection, "ROLLBACK");
            }
            Connection::Sqlite(_) => {}
            Connection::Maria(connection) => connection.rollback(),
        }
    }

    /// Keeps seeing the database as it is now.
    pub(crate) fn begin_snapshot(&self) -> Result<()> {
        match self {
            // A transaction of SQLite begins with its first read.
            Connection::Sqlite(connection) => {
                Ok(connection.execute_batch("BEGIN; SELECT 1 FROM config LIMIT 1")?)
            }
            Connection::Maria(connection) => connection.begin_snapshot(),
        }
    }

    /// Runs reads as one transaction where that takes less time than one for each.
    pub(crate) fn together<T>(&self, read: impl FnOnce() -> T) -> Result<T> {
        let Connection::Sqlite(connection) = self else { return Ok(read()) };
        run(connection, "BEGIN")?;
        let found = read();
        // After some errors SQLite has ended the transaction itself.
        if !connection.is_autocommit() {
            run(connection, "COMMIT")?;
        }
        Ok(found)
    }

    /// Runs reads of one state of the database, where statements alone have one each. Reads of a
    /// connection that writes, or of a file, need it not: only this process changes the rows, and
    /// data in a file are in no pieces.
    pub(crate) fn at_once<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        match self {
            Connection::Sqlite(_) => read(),
            Connection::Maria(connection) => connection.at_once(read),
        }
    }

    /// A number that changes when another connection writes to the file. A server has none.
    pub(crate) fn data_version(&self) -> Result<Option<i64>> {
        let Connection::Sqlite(connection) = self else { return Ok(None) };
        let mut find = connection.prepare_cached("PRAGMA data_version")?;
        Ok(Some(find.query_row([], |row| row.get(0))?))
    }

    /// Has commits of this connection synced, or come with the next synced one. A server decides
    /// that for itself.
    pub(crate) fn set_durable(&self, is_durable: bool) -> Result<()> {
        let Connection::Sqlite(connection) = self else { return Ok(()) };
        let synchronous = if is_durable { "FULL" } else { "NORMAL" };
        Ok(connection.pragma_update(None, "synchronous", synchronous)?)
    }
}

fn run(connection: &rusqlite::Connection, statement: &str) -> Result<()> {
    connection.prepare_cached(statement)?.execute([])?;
    Ok(())
}
