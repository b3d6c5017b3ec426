//! The tables and their columns. Names, order and types of columns are NEO's: NEO/py inserts rows
//! without naming columns.

use rusqlite::Connection;

/// Each table with its columns, and what follows them.
const TABLES: [(&str, &str, &str); 8] = [
    ("config", "name TEXT NOT NULL PRIMARY KEY, value TEXT", "WITHOUT ROWID"),
    ("pt", PT, "WITHOUT ROWID"),
    (
        "pack",
        "tid INTEGER PRIMARY KEY, approved BOOLEAN, partial BOOLEAN NOT NULL, oids BLOB, \
         pack_tid INTEGER",
        "",
    ),
    (
        "trans",
        "partition INTEGER NOT NULL, tid INTEGER NOT NULL, packed BOOLEAN NOT NULL, \
         oids BLOB NOT NULL, user BLOB NOT NULL, description BLOB NOT NULL, ext BLOB NOT NULL, \
         ttid INTEGER NOT NULL, PRIMARY KEY (partition, tid)",
        "WITHOUT ROWID",
    ),
    ("obj", OBJ, "WITHOUT ROWID"),
    (
        "data",
        "id INTEGER PRIMARY KEY, hash BLOB NOT NULL, compression INTEGER NOT NULL, \
         value BLOB NOT NULL",
        "",
    ),
    (
        "ttrans",
        "partition INTEGER NOT NULL, tid INTEGER, packed BOOLEAN NOT NULL, oids BLOB NOT NULL, \
         user BLOB NOT NULL, description BLOB NOT NULL, ext BLOB NOT NULL, ttid INTEGER NOT NULL",
        "",
    ),
    (
        "tobj",
        "partition INTEGER NOT NULL, oid INTEGER NOT NULL, tid INTEGER NOT NULL, \
         data_id INTEGER, value_tid INTEGER, PRIMARY KEY (tid, oid)",
        "WITHOUT ROWID",
    ),
];

/// The columns of table `pt`.
pub(super) const PT: &str = "partition INTEGER NOT NULL, nid INTEGER NOT NULL, \
     tid INTEGER NOT NULL, pack INTEGER, PRIMARY KEY (partition, nid)";

/// The columns of table `obj`.
pub(super) const OBJ: &str = "partition INTEGER NOT NULL, oid INTEGER NOT NULL, \
     tid INTEGER NOT NULL, data_id INTEGER, value_tid INTEGER, PRIMARY KEY (partition, oid, tid)";

/// Creates all tables and indices in an empty file.
pub(super) fn create(connection: &Connection, is_unique: bool) -> rusqlite::Result<()> {
    create_missing(connection)?;
    if is_unique {
        let index = "CREATE UNIQUE INDEX IF NOT EXISTS _data_i1 ON data(hash, compression)";
        connection.execute_batch(index)?;
    }
    Ok(())
}

/// Creates the tables and indices that are not there.
pub(super) fn create_missing(connection: &Connection) -> rusqlite::Result<()> {
    for (name, columns, options) in TABLES {
        let create = format!("CREATE TABLE IF NOT EXISTS {name} ({columns}) {options}");
        connection.execute_batch(create.trim_end())?;
    }
    connection.execute_batch(
        "CREATE INDEX IF NOT EXISTS _obj_i1 ON obj(partition, tid, oid);
         CREATE INDEX IF NOT EXISTS _obj_i2 ON obj(data_id)",
    )
}

/// Drops all tables.
pub(super) fn drop_all(connection: &Connection) -> rusqlite::Result<()> {
    let drops: String =
        TABLES.iter().map(|(name, ..)| format!("DROP TABLE IF EXISTS {name};")).collect();
    connection.execute_batch(&format!("BEGIN IMMEDIATE; {drops} COMMIT"))
}
