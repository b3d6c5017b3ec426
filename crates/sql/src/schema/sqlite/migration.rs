//! Migrates databases of older versions of NEO. All steps are one transaction of SQLite.

use rusqlite::{Connection, OptionalExtension};

use super::{has_table, tables};
use crate::SqlError;
use crate::place::Place;

/// Takes a database from an older version to the current one.
pub(super) fn migrate(
    connection: &Connection,
    place: &Place,
    version: u32,
) -> Result<(), SqlError> {
    let failed = place.cannot("migrate the database");
    if version < 1 {
        if has_rows(connection, "ttrans").map_err(&failed)?
            || has_rows(connection, "tobj").map_err(&failed)?
        {
            return Err(SqlError::NotMigrated {
                path: place.path().to_owned(),
                version,
                reason: "it has unfinished transactions; start and stop the cluster once with \
                         the NEO that wrote them",
            });
        }
        connection.execute_batch("DROP TABLE IF EXISTS ttrans").map_err(&failed)?;
    }
    migrate_tables(connection, version).map_err(&failed)
}

fn migrate_tables(connection: &Connection, version: u32) -> rusqlite::Result<()> {
    if version < 2 {
        // The primary key begins with the object, so that its revisions are together.
        let columns = "partition, oid, tid, data_id, value_tid";
        rebuild(connection, "obj", tables::OBJ, columns)?;
    }
    if version < 3 {
        // The state of a cell becomes its negative, and 0 if it is out of date.
        let tid = "CASE state WHEN 0 THEN -1 WHEN 2 THEN -2 ELSE 1 - state END";
        let columns = tables::PT.replace("pack INTEGER, ", "");
        rebuild(connection, "pt", &columns, &format!("rid, nid, {tid}"))?;
    }
    if version < 4 {
        connection.execute("DELETE FROM config WHERE name = 'partitions'", [])?;
        let nid = "SELECT CAST(value AS INTEGER) FROM config WHERE name = 'nid'";
        let nid: Option<i64> = connection.query_row(nid, [], |row| row.get(0)).optional()?;
        // Only the cells of this node know of packs.
        let pack = format!("CASE nid WHEN {} THEN 0 END", nid.unwrap_or(0));
        rebuild(connection, "pt", tables::PT, &format!("partition, nid, tid, {pack}"))?;
    }
    Ok(())
}

/// Copies a table to one with other columns, which takes its place. NEO/py does not do this in one
/// transaction: where it was interrupted, the copy is whole as soon as the table is gone.
fn rebuild(
    connection: &Connection,
    table: &str,
    columns: &str,
    select: &str,
) -> rusqlite::Result<()> {
    if has_table(connection, table)? {
        connection.execute_batch(&format!(
            "DROP TABLE IF EXISTS new_{table};
             CREATE TABLE new_{table} ({columns}) WITHOUT ROWID;
             INSERT INTO new_{table} SELECT {select} FROM {table};
             DROP TABLE {table}"
        ))?;
    } else if !has_table(connection, &format!("new_{table}"))? {
        return Ok(());
    }
    connection.execute_batch(&format!("ALTER TABLE new_{table} RENAME TO {table}"))
}

fn has_rows(connection: &Connection, table: &str) -> rusqlite::Result<bool> {
    let find = format!("SELECT EXISTS (SELECT 1 FROM {table})");
    Ok(has_table(connection, table)? && connection.query_row(&find, [], |row| row.get(0))?)
}
