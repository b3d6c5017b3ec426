//! Databases in folders of their own, and short ways to use them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;

use bytes::Bytes;
use rusqlite::Connection;
use rusqlite::types::Value;
use sha1::{Digest, Sha1};
use zodium_sql::{NewCluster, Partitions, SqlOptions, SqlStorage};
use zodium_storage::{
    Access, Load, NewBody, NewRecord, NewTransaction, Pack, PackOptions, Packed, Prepared, Read,
    StorageError, Write,
};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

/// Options that create a database of a cluster `test`.
pub(crate) fn options(path: &Path, partitions: u32) -> SqlOptions {
    let partitions = Partitions::new(partitions);
    let create = NewCluster { name: "test".to_owned(), partitions, keep_equal_data_once: false };
    SqlOptions {
        location: path.into(),
        create: Some(create),
        cluster: None,
        read_only: false,
        new_oids_gap: 0,
        quota_bytes: None,
        compress: true,
    }
}

pub(crate) fn record(oid: u64, body: NewBody) -> NewRecord {
    NewRecord { oid: Oid(oid), body }
}

pub(crate) fn data(oid: u64, data: &str) -> NewRecord {
    record(oid, NewBody::Data(Bytes::copy_from_slice(data.as_bytes())))
}

/// A record of so many times 20 bytes, which cannot be compressed.
pub(crate) fn noise(oid: u64, count: u32) -> NewRecord {
    let noise: Vec<u8> = (0..count).flat_map(|n| Sha1::digest(n.to_be_bytes())).collect();
    record(oid, NewBody::Data(noise.into()))
}

pub(crate) fn prepare(
    storage: &SqlStorage,
    records: Vec<NewRecord>,
) -> Result<Prepared, StorageError> {
    let (status, metadata) = (TransactionStatus::Normal, TransactionMetadata::default());
    let new = NewTransaction { status, metadata, records };
    match storage.prepare(new, Access::Blocking)? {
        Poll::Ready(prepared) => Ok(prepared),
        Poll::Pending => panic!("a blocking call does not wait"),
    }
}

pub(crate) fn commit_at(storage: &SqlStorage, tid: Tid, records: Vec<NewRecord>) -> Tid {
    let prepared = prepare(storage, records).unwrap();
    storage.commit(vec![(tid, prepared)]).unwrap();
    tid
}

pub(crate) fn commit(storage: &SqlStorage, records: Vec<NewRecord>) -> Tid {
    commit_at(storage, Tid(storage.last_tid().0 + 1000), records)
}

pub(crate) fn current(storage: &SqlStorage, oid: u64) -> Option<String> {
    match storage.load_before(Oid(oid), Tid::MAX, Access::Blocking).unwrap() {
        Load::Revision(found) => Some(String::from_utf8(found.data.to_vec()).unwrap()),
        Load::NoRevision | Load::Missing => None,
        Load::WouldBlock => panic!("a blocking load does not wait"),
    }
}

pub(crate) fn pack(storage: &SqlStorage, until: Tid, gc: bool) -> Option<Packed> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let options = PackOptions { gc, ..PackOptions::new(&cancelled) };
    storage.pack(until, &options).unwrap()
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn sha1(bytes: &[u8]) -> String {
    hexadecimal(&Sha1::digest(bytes))
}

/// All rows of a table.
pub(crate) fn rows(path: &Path, table: &str) -> Vec<Vec<Value>> {
    let connection = Connection::open(path).unwrap();
    let mut query = connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).unwrap();
    let columns = query.column_count();
    let row = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
    query.query_map([], row).unwrap().map(Result::unwrap).collect()
}

/// Gives a database of now the tables of an older version of NEO.
pub(crate) fn make_older(path: &Path, version: u32) {
    let connection = Connection::open(path).unwrap();
    let mut script = String::new();
    if version < 4 {
        script += "CREATE TABLE old AS SELECT partition, nid, tid FROM pt; DROP TABLE pt;
            CREATE TABLE pt (partition INTEGER NOT NULL, nid INTEGER NOT NULL,
                tid INTEGER NOT NULL, PRIMARY KEY (partition, nid)) WITHOUT ROWID;
            INSERT INTO pt SELECT * FROM old; DROP TABLE old; DROP TABLE pack;
            INSERT INTO config VALUES ('partitions', '2');";
    }
    if version < 3 {
        script += "ALTER TABLE pt RENAME TO old;
            CREATE TABLE pt (rid INTEGER NOT NULL, nid INTEGER NOT NULL,
                state INTEGER NOT NULL, PRIMARY KEY (rid, nid)) WITHOUT ROWID;
            INSERT INTO pt SELECT partition, nid, 0 FROM old; DROP TABLE old;";
    }
    if version < 2 {
        script += "ALTER TABLE obj RENAME TO old;
            CREATE TABLE obj (partition INTEGER NOT NULL, oid INTEGER NOT NULL,
                tid INTEGER NOT NULL, data_id INTEGER, value_tid INTEGER,
                PRIMARY KEY (partition, tid, oid)) WITHOUT ROWID;
            INSERT INTO obj SELECT * FROM old; DROP TABLE old;";
    }
    if version < 1 {
        script += "DELETE FROM config WHERE name = 'version';";
    } else {
        script += &format!("UPDATE config SET value = '{version}' WHERE name = 'version';");
    }
    connection.execute_batch(&script).unwrap();
}
