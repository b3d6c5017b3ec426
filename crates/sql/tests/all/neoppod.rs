//! NEO/py reads what this crate writes, and the other way round.
//!
//! With `NEOPPOD`, a checkout of NEO/py, and `NEOPPOD_PYTHON`, an interpreter with msgpack and six.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Once;

use bytes::Bytes;
use rusqlite::Connection;
use zodium_sql::{SqlOptions, SqlStorage};
use zodium_storage::{NewBody, Read, Write as _};
use zodium_types::{Oid, Tid};

use crate::support::{self, commit, commit_at, data, pack};

static SKIPPED: Once = Once::new();

/// NEO/py's adapter, a process for each call.
struct Neoppod {
    checkout: String,
    python: String,
}

impl Neoppod {
    /// `None`, with a loud line, without a checkout.
    fn find() -> Option<Neoppod> {
        let variables = (std::env::var("NEOPPOD"), std::env::var("NEOPPOD_PYTHON"));
        let (Ok(checkout), Ok(python)) = variables else {
            SKIPPED.call_once(|| {
                // Not captured, as `eprintln!` is.
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED: databases are not exchanged with NEO/py. Set NEOPPOD to a checkout \
                     of it, and NEOPPOD_PYTHON to a Python with msgpack and six"
                );
            });
            return None;
        };
        Some(Neoppod { checkout, python })
    }

    /// Runs a command on a database; what the database holds then.
    fn run(&self, command: &str, path: &Path, arguments: &[&str]) -> BTreeSet<String> {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/neoppod.py");
        let run = Command::new(&self.python)
            .args([program, &self.checkout, command])
            .arg(path)
            .args(arguments)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{command}: {errors}");
        String::from_utf8(run.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

/// What a storage holds, as NEO/py's side prints it.
fn shown(storage: &SqlStorage) -> BTreeSet<String> {
    let (database, mut lines) = (storage.database(), BTreeSet::new());
    let mut cursor = storage.iterate(None, None).unwrap();
    while let Some(transaction) = cursor.step().unwrap() {
        let row = database.transaction(transaction.tid).unwrap().unwrap();
        let oids: Vec<u8> = row.oids.iter().flat_map(|oid| oid.to_bytes()).collect();
        let metadata = &row.metadata;
        let texts = [&metadata.user, &metadata.description, &metadata.extension, &oids];
        let texts = texts.map(|text| support::hexadecimal(text)).join(",");
        lines.insert(format!("T {} {texts} {}", row.tid, u8::from(row.is_packed)));
        for oid in row.oids {
            let Some(record) = database.load_at(oid, row.tid).unwrap() else { continue };
            let data = record.data.map(|data| data.into_data().unwrap());
            let data = data.map_or("-".to_owned(), |data| support::sha1(&data));
            let value_tid = record.value_tid.map_or("-".to_owned(), |tid| tid.to_string());
            lines.insert(format!("R {oid} {} {data} {value_tid}", row.tid));
        }
    }
    lines
}

fn opened(path: &Path) -> SqlStorage {
    SqlStorage::open(&SqlOptions { create: None, ..support::options(path, 1) }).unwrap()
}

#[test]
fn databases_of_neoppod_are_read_and_written() {
    let Some(neoppod) = Neoppod::find() else { return };
    for (partitions, dedup) in [("1", "0"), ("5", "0"), ("3", "1")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("neo.sqlite");
        let written = neoppod.run("write", &path, &[partitions, dedup]);
        let storage = opened(&path);
        assert_eq!(shown(&storage), written);
        let last = storage.last_tid();
        assert!(storage.last_oid() >= Oid(9));
        let first = storage.history(Oid(1), 9).unwrap().last().unwrap().transaction.tid;
        let tid = commit(&storage, vec![data(1, "ours"), data(50, "new")]);
        assert!(tid > last);
        commit(&storage, vec![support::record(1, NewBody::SameAs(first))]);
        storage.close().unwrap();
        let ours = shown(&storage);
        drop(storage);
        assert_eq!(neoppod.run("read", &path, &[]), ours);
        let theirs = neoppod.run("continue", &path, &[]);
        assert_eq!(shown(&opened(&path)), theirs);
    }
}

#[test]
fn neoppod_reads_and_packs_what_is_written_here() {
    let Some(neoppod) = Neoppod::find() else { return };
    for partitions in [1, 7] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("neo.sqlite");
        let storage = SqlStorage::open(&support::options(&path, partitions)).unwrap();
        let large: Bytes = (0..3_000_000_u32).map(|n| (n % 253) as u8).collect::<Vec<_>>().into();
        let first = commit_at(&storage, Tid(0x03e0 << 48), vec![data(0, "root"), data(8, "x")]);
        commit(&storage, vec![support::record(5, NewBody::Data(large)), data(8, "y")]);
        let until = commit(&storage, vec![support::record(8, NewBody::Deleted)]);
        commit(&storage, vec![support::record(8, NewBody::SameAs(first))]);
        commit(&storage, vec![support::record(8, NewBody::SameAs(first))]);
        assert_eq!(neoppod_after_close(&neoppod, &path, storage), "same");
        let storage = opened(&path);
        assert!(pack(&storage, until, false).is_some());
        assert_eq!(neoppod_after_close(&neoppod, &path, storage), "same");
        let theirs = neoppod.run("continue", &path, &[]);
        assert_eq!(shown(&opened(&path)), theirs);
    }
}

/// Whether NEO/py finds in a database what this crate finds.
fn neoppod_after_close(neoppod: &Neoppod, path: &Path, storage: SqlStorage) -> &'static str {
    let ours = shown(&storage);
    storage.close().unwrap();
    drop(storage);
    assert_eq!(neoppod.run("read", path, &[]), ours);
    "same"
}

#[test]
fn transactions_that_neoppod_left_unfinished_are_ended() {
    let Some(neoppod) = Neoppod::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neo.sqlite");
    neoppod.run("write", &path, &["3", "0"]);
    neoppod.run("unfinished", &path, &[]);
    let storage = opened(&path);
    assert!(storage.database().unfinished().unwrap().is_empty());
    assert_eq!(support::current(&storage, 1).as_deref(), Some("locked"));
    assert_eq!(support::current(&storage, 30).as_deref(), Some("new"));
    assert_eq!(support::current(&storage, 2), None);
    let ours = shown(&storage);
    drop(storage);
    assert_eq!(neoppod.run("read", &path, &[]), ours);
}

/// Columns and indices of all tables.
fn schema_of(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let columns = "SELECT t.name || ' ' || t.wr || ' ' || c.cid || ' ' || c.name || ' ' || c.type \
         || ' ' || c.\"notnull\" || ' ' || c.pk FROM pragma_table_list t, \
         pragma_table_info(t.name) c WHERE t.schema = 'main' AND t.name NOT LIKE 'sqlite%'";
    let indices = "SELECT t.name || ' ' || i.name || ' ' || i.\"unique\" || ' ' || c.seqno || ' ' \
         || c.name FROM pragma_table_list t, pragma_index_list(t.name) i, \
         pragma_index_info(i.name) c WHERE t.schema = 'main' AND i.origin = 'c'";
    let mut all = Vec::new();
    for query in [columns, indices] {
        let mut query = connection.prepare(query).unwrap();
        let rows = query.query_map([], |row| row.get::<_, String>(0)).unwrap();
        all.extend(rows.map(Result::unwrap));
    }
    all.sort();
    all
}

#[test]
fn schema_is_that_of_neoppod() {
    let Some(neoppod) = Neoppod::find() else { return };
    for once in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let mut options = support::options(&ours, 2);
        options.create.as_mut().unwrap().keep_equal_data_once = once;
        drop(SqlStorage::open(&options).unwrap());
        neoppod.run("write", &theirs, &["2", if once { "1" } else { "0" }]);
        assert_eq!(schema_of(&ours), schema_of(&theirs));
    }
}

#[test]
fn migration_is_that_of_neoppod() {
    let Some(neoppod) = Neoppod::find() else { return };
    for version in [0, 1, 2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let written = neoppod.run("write", &ours, &["2", "0"]);
        support::make_older(&ours, version);
        std::fs::copy(&ours, &theirs).unwrap();
        assert_eq!(neoppod.run("migrate", &theirs, &[]), written);
        let storage = opened(&ours);
        assert_eq!(shown(&storage), written);
        storage.close().unwrap();
        drop(storage);
        assert_eq!(schema_of(&ours), schema_of(&theirs));
        assert_eq!(support::rows(&ours, "pt"), support::rows(&theirs, "pt"));
        assert_eq!(support::rows(&ours, "config"), support::rows(&theirs, "config"));
    }
}
