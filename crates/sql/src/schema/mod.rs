//! The tables of a NEO database: creates them, checks their version, migrates older ones.

mod maria;
mod sqlite;

use crate::SqlError;
use crate::cluster::{Cluster, setting};
use crate::driver::{self, Connection};
use crate::place::Place;

/// The version of the schema that this program reads and writes.
const VERSION: u32 = 4;

/// What a database holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing: it is new.
    Nothing,
    /// NEO's tables, of this version.
    Neo(u32),
}

/// Finds out what a database holds.
pub(crate) fn content(connection: &Connection, place: &Place) -> Result<Content, SqlError> {
    let read = place.cannot("read the schema");
    let [tables, columns] = connection.choose(sqlite::COUNTS, maria::COUNTS);
    let count = |sql| connection.query_row(sql, [], |row| row.get::<i64>(0)).map_err(&read);
    if count(tables)? == 0 {
        return Ok(Content::Nothing);
    }
    let foreign = || SqlError::ForeignDatabase { path: place.path().to_owned() };
    // Other applications may have a table of that name.
    if count(columns)? < 2 {
        return Err(foreign());
    }
    let version = setting(connection, "version").map_err(&read)?;
    match version.map_or(Ok(0), |version| version.parse()) {
        Ok(version) if version > VERSION => {
            Err(SqlError::TooNew { path: place.path().to_owned(), version, known: VERSION })
        }
        Ok(version) => Ok(Content::Neo(version)),
        Err(_) => Err(foreign()),
    }
}

/// Makes the tables of the current version out of what a database holds. SQLite does it all or
/// not at all, and a server one table after the other. With `is_unique`, new tables keep equal data
/// once.
pub(crate) fn set_up(
    connection: &mut Connection,
    place: &Place,
    content: Content,
    is_unique: bool,
) -> Result<(), SqlError> {
    match connection {
        Connection::Sqlite(connection) => sqlite::set_up(connection, place, content, is_unique),
        Connection::Maria(_) => maria::set_up(connection, place, content, is_unique),
    }
}

/// Refuses a database whose tables would have to be changed, where that is not allowed.
pub(crate) fn check_current(content: Content, place: &Place) -> Result<(), SqlError> {
    match content {
        Content::Nothing => Err(SqlError::Missing { path: place.path().to_owned() }),
        Content::Neo(VERSION) => Ok(()),
        Content::Neo(version) => Err(SqlError::NotMigrated {
            path: place.path().to_owned(),
            version,
            reason: "it is opened read-only; serve it once with writes allowed",
        }),
    }
}

/// What a database that may be older knows of its cluster. `None`: nothing yet, or that cannot be
/// told, since a migration on a server was interrupted.
pub(crate) fn cluster(connection: &Connection, content: Content) -> Option<Cluster> {
    match content {
        Content::Nothing => None,
        Content::Neo(version) => Cluster::read_older(connection, version).ok(),
    }
}

/// Drops all tables, with what is in them.
pub(crate) fn drop_all(connection: &Connection) -> driver::Result<()> {
    match connection {
        Connection::Sqlite(connection) => Ok(sqlite::drop_all(connection)?),
        Connection::Maria(_) => maria::drop_all(connection),
    }
}
