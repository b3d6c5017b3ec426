//! The tables and their columns. Names, order and types of columns, and keys, are NEO's: NEO/py
//! inserts rows without naming columns.

use super::MariaEngine;
use crate::driver::{self, Connection};

/// All tables.
pub(super) const NAMES: [&str; 10] =
    ["config", "pt", "pack", "trans", "obj", "data", "bigdata", "ttrans", "tobj", "todel"];

/// The columns of table `pt`.
pub(super) const PT: &str = "partition SMALLINT UNSIGNED NOT NULL, nid INT NOT NULL, \
     tid BIGINT NOT NULL, pack BIGINT UNSIGNED, PRIMARY KEY (partition, nid)";

/// The columns of tables `trans` and `ttrans`; the first has a tid.
const TRANSACTION: &str = "packed BOOLEAN NOT NULL, oids MEDIUMBLOB NOT NULL, \
     user BLOB NOT NULL, description BLOB NOT NULL, ext BLOB NOT NULL, \
     ttid BIGINT UNSIGNED NOT NULL";

/// The columns of tables `obj` and `tobj`.
const RECORD: &str = "partition SMALLINT UNSIGNED NOT NULL, oid BIGINT UNSIGNED NOT NULL, \
     tid BIGINT UNSIGNED NOT NULL, data_id BIGINT UNSIGNED NULL, value_tid BIGINT UNSIGNED NULL";

/// The columns and keys of a table. In RocksDB the comment of a key names its column family.
pub(super) fn columns(name: &str, engine: MariaEngine, is_unique: bool) -> String {
    let family = |family: &str| match engine {
        MariaEngine::InnoDb => String::new(),
        MariaEngine::RocksDb => match family.strip_prefix("rev:") {
            Some(family) => format!(" COMMENT 'rev:cf_neo_{family}'"),
            None => format!(" COMMENT 'cf_neo_{family}'"),
        },
    };
    let (append, meta, plain) = (family("append"), family("append_meta"), family("no_comp"));
    match name {
        "config" => {
            "name VARBINARY(255) NOT NULL PRIMARY KEY, value VARBINARY(255) NULL".to_owned()
        }
        "pt" => PT.to_owned(),
        "pack" => "tid BIGINT UNSIGNED NOT NULL PRIMARY KEY, approved BOOLEAN, \
             partial BOOLEAN NOT NULL, oids MEDIUMBLOB, pack_tid BIGINT UNSIGNED"
            .to_owned(),
        "trans" => format!(
            "partition SMALLINT UNSIGNED NOT NULL, tid BIGINT UNSIGNED NOT NULL, {TRANSACTION}, \
             PRIMARY KEY (partition, tid){meta}"
        ),
        "obj" => format!(
            "{RECORD}, PRIMARY KEY (partition, oid, tid){}, KEY tid (partition, tid, oid){meta}, \
             KEY (data_id){meta}",
            family("rev:obj_pk")
        ),
        "data" => format!(
            "id BIGINT UNSIGNED NOT NULL, hash BINARY(20) NOT NULL, \
             compression TINYINT UNSIGNED NULL, value MEDIUMBLOB NOT NULL, \
             PRIMARY KEY (id){append}{}",
            if is_unique { format!(", UNIQUE (hash, compression){plain}") } else { String::new() }
        ),
        "bigdata" => format!(
            "id INT UNSIGNED NOT NULL AUTO_INCREMENT, value MEDIUMBLOB NOT NULL, \
             PRIMARY KEY (id){append}"
        ),
        "ttrans" => format!(
            "partition SMALLINT UNSIGNED NOT NULL, tid BIGINT UNSIGNED, {TRANSACTION}, \
             PRIMARY KEY (ttid){plain}"
        ),
        "tobj" => format!("{RECORD}, PRIMARY KEY (tid, oid){plain}"),
        _ => format!("data_id BIGINT UNSIGNED NOT NULL, PRIMARY KEY (data_id){plain}"),
    }
}

/// Creates a table that is not there.
pub(super) fn create(
    connection: &Connection,
    name: &str,
    engine: MariaEngine,
    is_unique: bool,
) -> driver::Result<()> {
    let (columns, engine) = (columns(name, engine, is_unique), engine.name());
    let create = format!("CREATE TABLE IF NOT EXISTS {name} ({columns}) ENGINE={engine}");
    connection.execute(&create, []).map(|_| ())
}

/// Creates the tables that are not there.
pub(super) fn create_missing(
    connection: &Connection,
    engine: MariaEngine,
    is_unique: bool,
) -> driver::Result<()> {
    NAMES.iter().try_for_each(|name| create(connection, name, engine, is_unique))
}

/// Drops all tables.
pub(super) fn drop_all(connection: &Connection) -> driver::Result<()> {
    connection.execute(&drop_statement(), []).map(|_| ())
}

/// The server drops one table after the other. While there is a `config`, the database is NEO's,
/// and can be erased again. Without a `pt` it has no cell, whatever else is left.
fn drop_statement() -> String {
    let [config, others @ ..] = NAMES;
    format!("DROP TABLE IF EXISTS {}, {config}", others.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_erasure_begins_with_the_cells_and_ends_with_what_tells_that_the_tables_are_neos() {
        let statement = drop_statement();
        assert!(statement.starts_with("DROP TABLE IF EXISTS pt, "), "{statement}");
        assert!(statement.ends_with(", config"), "{statement}");
    }
}
