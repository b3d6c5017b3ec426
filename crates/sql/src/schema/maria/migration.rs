//! Migrates databases of older versions of NEO, in NEO/py's steps: a server has no transactions
//! with changes of tables. Each step notes its version, and where it was interrupted, it goes on.

use super::{MariaEngine, VERSION, has_column, has_table, set_version, tables};
use crate::SqlError;
use crate::driver::{self, Connection, Optional};
use crate::place::Place;

/// Takes a database from an older version to the current one.
pub(super) fn migrate(
    connection: &Connection,
    place: &Place,
    engine: MariaEngine,
    version: u32,
) -> Result<(), SqlError> {
    let failed = place.cannot("migrate the database");
    if version < 1
        && (has_rows(connection, "ttrans").map_err(&failed)?
            || has_rows(connection, "tobj").map_err(&failed)?)
    {
        return Err(SqlError::NotMigrated {
            path: place.path().to_owned(),
            version,
            reason: "it has unfinished transactions; start and stop the cluster once with the \
                     NEO that wrote them",
        });
    }
    for next in version + 1..=VERSION {
        step(connection, engine, next).map_err(&failed)?;
        set_version(connection, next).map_err(&failed)?;
    }
    Ok(())
}

/// Takes a database to the next version. It may be there already: the version is written last.
fn step(connection: &Connection, engine: MariaEngine, version: u32) -> driver::Result<()> {
    match version {
        1 => connection.execute("DROP TABLE IF EXISTS ttrans", []).map(|_| ()),
        2 => {
            // The primary key begins with the object, so that its revisions are together.
            let columns = tables::columns("obj", engine, false);
            rebuild(connection, engine, "obj", &columns, "*")
        }
        3 if has_column(connection, "pt", "partition")? => Ok(()),
        3 => {
            // The state of a cell becomes its negative, and 0 if it is out of date.
            let tid = "CASE state WHEN 0 THEN -1 WHEN 2 THEN -2 ELSE 1 - state END AS tid";
            let columns = tables::PT.replace("pack BIGINT UNSIGNED, ", "");
            rebuild(connection, engine, "pt", &columns, &format!("rid AS partition, nid, {tid}"))
        }
        _ => {
            connection.execute("DELETE FROM config WHERE name = 'partitions'", [])?;
            if has_column(connection, "pt", "pack")? {
                return Ok(());
            }
            let nid = "SELECT value FROM config WHERE name = 'nid'";
            let nid: Option<String> = connection.query_row(nid, [], |row| row.get(0)).optional()?;
            let nid: i64 = nid.and_then(|nid| nid.parse().ok()).unwrap_or(0);
            // Only the cells of this node know of packs.
            let pack = format!("partition, nid, tid, IF(nid = {nid}, 0, NULL) AS pack");
            rebuild(connection, engine, "pt", tables::PT, &pack)
        }
    }
}

/// Copies a table to one with other columns, which takes its place.
fn rebuild(
    connection: &Connection,
    engine: MariaEngine,
    table: &str,
    columns: &str,
    select: &str,
) -> driver::Result<()> {
    if has_table(connection, table)? {
        let engine = engine.name();
        connection.execute(&format!("DROP TABLE IF EXISTS new_{table}"), [])?;
        connection.execute(
            &format!(
                "CREATE TABLE new_{table} ({columns}) ENGINE={engine} SELECT {select} FROM {table}"
            ),
            [],
        )?;
        connection.execute(&format!("DROP TABLE {table}"), [])?;
    } else if !has_table(connection, &format!("new_{table}"))? {
        return Ok(());
    }
    connection.execute(&format!("ALTER TABLE new_{table} RENAME TO {table}"), []).map(|_| ())
}

fn has_rows(connection: &Connection, table: &str) -> driver::Result<bool> {
    if !has_table(connection, table)? {
        return Ok(false);
    }
    let find = format!("SELECT EXISTS (SELECT 1 FROM {table})");
    connection.query_row(&find, [], |row| row.get(0))
}
