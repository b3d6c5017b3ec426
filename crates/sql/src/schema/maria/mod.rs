//! NEO's tables on a MariaDB server.

mod migration;
mod tables;

use super::{Content, VERSION};
use crate::SqlError;
use crate::cluster::set_setting;
use crate::driver::{self, Connection, Error, MariaEngine, Optional, params};
use crate::place::Place;

/// Count the tables, and the columns of NEO's table of settings.
pub(super) const COUNTS: [&str; 2] = [
    "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()",
    "SELECT COUNT(*) FROM information_schema.columns \
     WHERE table_schema = DATABASE() AND table_name = 'config' \
     AND column_name IN ('name', 'value')",
];

/// Makes the tables of the current version. Each of them is a transaction of its own: where it was
/// interrupted, it goes on at the next start. So a new database has its version before the tables
/// that the version is about.
pub(super) fn set_up(
    connection: &Connection,
    place: &Place,
    content: Content,
    is_unique: bool,
) -> Result<(), SqlError> {
    let failed = place.cannot("create the tables");
    let engine = place.server().map(|server| server.address().engine()).unwrap_or_default();
    match content {
        Content::Nothing => {
            tables::create(connection, "config", engine, is_unique).map_err(&failed)?;
            set_version(connection, VERSION).map_err(&failed)?;
        }
        Content::Neo(version) => migration::migrate(connection, place, engine, version)?,
    }
    tables::create_missing(connection, engine, is_unique).map_err(&failed)?;
    check_engines(connection).map_err(place.cannot("open the tables"))
}

/// Refuses tables whose engine has no transactions: a commit would be there in part after a crash.
fn check_engines(connection: &Connection) -> driver::Result<()> {
    let find = format!(
        "SELECT table_name, engine FROM information_schema.tables \
         JOIN information_schema.engines USING (engine) \
         WHERE table_schema = DATABASE() AND transactions <> 'YES' \
         AND table_name IN ('{}') LIMIT 1",
        tables::NAMES.join("', '")
    );
    let row = |row: &driver::Row<'_>| Ok((row.get::<String>(0)?, row.get::<String>(1)?));
    match connection.query_row(&find, [], row).optional()? {
        None => Ok(()),
        Some((table, engine)) => Err(Error::Settings(format!(
            "table {table} has the engine {engine}, which has no transactions; convert it: ALTER \
             TABLE {table} ENGINE=InnoDB"
        ))),
    }
}

/// Drops all tables.
pub(super) fn drop_all(connection: &Connection) -> driver::Result<()> {
    tables::drop_all(connection)
}

fn set_version(connection: &Connection, version: u32) -> driver::Result<()> {
    set_setting(connection, "version", &version.to_string())
}

fn has_table(connection: &Connection, name: &str) -> driver::Result<bool> {
    let find = "SELECT COUNT(*) FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND table_name = ?1";
    let found: i64 = connection.query_row(find, params![name], |row| row.get(0))?;
    Ok(found > 0)
}

fn has_column(connection: &Connection, table: &str, column: &str) -> driver::Result<bool> {
    let find = "SELECT COUNT(*) FROM information_schema.columns \
         WHERE table_schema = DATABASE() AND table_name = ?1 AND column_name = ?2";
    let found: i64 = connection.query_row(find, params![table, column], |row| row.get(0))?;
    Ok(found > 0)
}
