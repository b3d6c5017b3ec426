//! Creations, migrations and erasures that were interrupted go on.

use std::thread::sleep;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use zodium_sql::{NodeDatabase, SqlError, SqlStorage};

use super::server::{Database, Server};
use crate::support::{commit, current, data};

/// All tables, in the order of their creation.
const TABLES: [&str; 10] =
    ["config", "pt", "pack", "trans", "obj", "data", "bigdata", "ttrans", "tobj", "todel"];

/// Makes `pt` that of schema version 2.
const OLDER: &str = "CREATE TABLE old AS SELECT partition AS rid, nid, 1 + tid AS state FROM pt; \
     DROP TABLE pt; RENAME TABLE old TO pt; \
     UPDATE config SET value = '2' WHERE name = 'version'";
const NEW_PT: &str = "partition SMALLINT UNSIGNED NOT NULL, nid INT NOT NULL, \
     tid BIGINT NOT NULL, PRIMARY KEY (partition, nid)";

fn run(database: &Database, script: &str) {
    let mut connection = database.connect();
    // A reserved word.
    let script = script.replace("partition", "`partition`");
    for statement in script.split("; ").filter(|statement| !statement.is_empty()) {
        connection.query_drop(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

fn version(database: &Database) -> Option<String> {
    let find = "SELECT value FROM config WHERE name = 'version'";
    database.connect().query_first(find).unwrap()
}

fn open(database: &Database) -> Result<SqlStorage, SqlError> {
    let start = Instant::now();
    loop {
        match SqlStorage::open(&database.options(1)) {
            // The server frees the lock a moment after the end of the session that had it.
            Err(SqlError::InUse { .. }) if start.elapsed() < Duration::from_secs(10) => {
                sleep(Duration::from_millis(20));
            }
            opened => return opened,
        }
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_creation_that_was_interrupted_goes_on() {
    for created in 1..TABLES.len() {
        for has_version in [false, true] {
            let database = Server::start().database();
            drop(open(&database).unwrap());
            run(&database, &format!("DROP TABLE {}", TABLES[created..].join(", ")));
            run(&database, "DELETE FROM config WHERE name <> 'version'");
            if created > 1 {
                run(&database, "DELETE FROM pt");
            }
            if !has_version {
                run(&database, "DELETE FROM config");
            }
            let storage = open(&database).unwrap_or_else(|error| panic!("{created}: {error}"));
            commit(&storage, vec![data(1, "one")]);
            assert_eq!(current(&storage, 1).as_deref(), Some("one"));
            assert_eq!(version(&database).as_deref(), Some("4"));
        }
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_migration_that_was_interrupted_goes_on() {
    let tid = "CASE state WHEN 0 THEN -1 WHEN 2 THEN -2 ELSE 1 - state END AS tid";
    let copy =
        format!("CREATE TABLE new_pt ({NEW_PT}) SELECT rid AS partition, nid, {tid} FROM pt");
    let renamed = "DROP TABLE pt; ALTER TABLE new_pt RENAME TO pt";
    let third = "UPDATE config SET value = '3' WHERE name = 'version'";
    for interrupted in [
        String::new(),
        copy.clone(),
        format!("{copy}; DROP TABLE pt"),
        format!("{copy}; {renamed}"),
        format!("{copy}; {renamed}; {third}"),
        format!("{copy}; {renamed}; ALTER TABLE pt ADD COLUMN pack BIGINT UNSIGNED; {third}"),
        format!("{copy}; {renamed}; ALTER TABLE pt ADD COLUMN pack BIGINT UNSIGNED"),
    ] {
        let database = Server::start().database();
        let storage = open(&database).unwrap();
        commit(&storage, vec![data(1, "one")]);
        drop(storage);
        run(&database, OLDER);
        run(&database, &interrupted);
        let storage = open(&database).unwrap_or_else(|error| panic!("{interrupted}: {error}"));
        assert_eq!(current(&storage, 1).as_deref(), Some("one"));
        assert_eq!(version(&database).as_deref(), Some("4"));
        let cells: Vec<(u32, i32, i64)> =
            database.connect().query("SELECT `partition`, nid, tid FROM pt").unwrap();
        assert_eq!(cells, [(0, 1, -1)], "{interrupted}");
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn each_step_of_a_migration_notes_its_version() {
    let database = Server::start().database();
    drop(open(&database).unwrap());
    run(&database, OLDER);
    // The step to version 3 finds no column with the states.
    run(&database, "UPDATE config SET value = '1' WHERE name = 'version'");
    run(&database, "ALTER TABLE pt RENAME COLUMN state TO other");
    assert!(open(&database).unwrap_err().to_string().contains("migrate"));
    assert_eq!(version(&database).as_deref(), Some("2"));
    run(&database, "ALTER TABLE pt RENAME COLUMN other TO state");
    drop(open(&database).unwrap());
}

#[test]
#[ignore = "needs MariaDB"]
fn an_erasure_that_was_interrupted_goes_on() {
    let database = Server::start().database();
    drop(open(&database).unwrap());
    run(&database, "DROP TABLE pt, pack, trans, obj");
    NodeDatabase::erase(&database.options(1).location).unwrap();
    let tables: Vec<String> = database.connect().query("SHOW TABLES").unwrap();
    assert!(tables.is_empty(), "{tables:?}");
    drop(open(&database).unwrap());
}

#[test]
#[ignore = "needs MariaDB"]
fn tables_without_transactions_are_refused() {
    let database = Server::start().database();
    drop(open(&database).unwrap());
    for engine in ["MyISAM", "Aria", "MEMORY"] {
        run(&database, &format!("ALTER TABLE pt ENGINE={engine}"));
        let text = open(&database).unwrap_err().to_string();
        assert!(text.contains(&format!("table pt has the engine {engine}")), "{text}");
    }
    run(&database, "ALTER TABLE pt ENGINE=InnoDB");
    drop(open(&database).unwrap());
}

#[test]
#[ignore = "needs MariaDB"]
fn a_database_of_another_application_is_not_called_one_of_sqlite() {
    let database = Server::start().database();
    run(&database, "CREATE TABLE users (name TEXT)");
    let error = open(&database).unwrap_err();
    assert!(matches!(error, SqlError::ForeignDatabase { .. }), "{error}");
    assert!(!error.to_string().contains("SQLite"), "{error}");
}
