//! NEO's tables in SQLite.

mod migration;
mod tables;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::{Content, VERSION};
use crate::SqlError;
use crate::place::Place;

/// Count the tables, and the columns of NEO's table of settings.
pub(super) const COUNTS: [&str; 2] = [
    "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table'",
    "SELECT COUNT(*) FROM pragma_table_info('config') WHERE name IN ('name', 'value')",
];

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
