//! NEO's tables in SQLite.

mod migration;
mod tables;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::{Content, VERSION};
use crate::SqlError;
use crate::place::Place;

/// Finds out what a file holds.
pub(super) fn content(connection: &Connection, place: &Place) -> Result<Content, SqlError> {
    let read = place.cannot("read the schema");
    let tables = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table'";
    let tables: u32 = connection.query_row(tables, [], |row| row.get(0)).map_err(&read)?;
    if tables == 0 {
        return Ok(Content::Nothing);
    }
    let foreign = || SqlError::ForeignDatabase { path: place.path().to_owned() };
    // Other applications may have a table of that name.
    let columns =
        "SELECT COUNT(*) FROM pragma_table_info('config') WHERE name IN ('name', 'value')";
    let columns: u32 = connection.query_row(columns, [], |row| row.get(0)).map_err(&read)?;
    if columns < 2 {
        return Err(foreign());
    }
    let version = "SELECT value FROM config WHERE name = 'version'";
    let version: Option<String> =
        connection.query_row(version, [], |row| row.get(0)).optional().map_err(&read)?;
    match version.map_or(Ok(0), |version| version.parse()) {
        Ok(version) if version > VERSION => {
            Err(SqlError::TooNew { path: place.path().to_owned(), version, known: VERSION })
        }
        Ok(version) => Ok(Content::Neo(version)),
        Err(_) => Err(foreign()),
    }
}

/// Makes the tables of the current version out of what a file holds, all or nothing. With
/// `is_unique`, new tables keep equal data once.
pub(super) fn set_up(
    connection: &mut Connection,
    place: &Place,
    content: Content,
    is_unique: bool,
) -> Result<(), SqlError> {
    let failed = place.cannot("create the tables");
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&failed)?;
    match content {
        Content::Nothing => {
            tables::create(&transaction, is_unique).map_err(&failed)?;
            set_version(&transaction, VERSION).map_err(&failed)?;
        }
        Content::Neo(version) => {
            if version < VERSION {
                migration::migrate(&transaction, place, version)?;
                set_version(&transaction, VERSION).map_err(&failed)?;
            }
            tables::create_missing(&transaction).map_err(&failed)?;
        }
    }
    transaction.commit().map_err(&failed)
}

/// Drops all tables, with what is in them.
pub(super) fn drop_all(connection: &Connection) -> rusqlite::Result<()> {
    tables::drop_all(connection)
}

fn set_version(connection: &Connection, version: u32) -> rusqlite::Result<()> {
    let set = "REPLACE INTO config (name, value) VALUES ('version', ?1)";
    connection.execute(set, [version.to_string()]).map(|_| ())
}

fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let find = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
    Ok(connection.query_row(find, [name], |_| Ok(())).optional()?.is_some())
}
