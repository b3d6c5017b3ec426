//! Lost connections, lost answers, and other processes.

use mysql::prelude::Queryable;
use zodium_sql::{SqlStorage, StoredData, VotedRecord, Writer};
use zodium_storage::{Access, NewBody, NewTransaction, Read, StorageError, Write};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use super::cutter::Cutter;
use super::server::{Database, Server};
use crate::support;

fn open(database: &Database) -> SqlStorage {
    SqlStorage::open(&database.options(1)).unwrap()
}

/// Commits an object in one transaction; `between` runs after its first statement.
fn write(storage: &SqlStorage, oid: u64, data: &[u8], between: impl FnOnce()) -> Tid {
    let (oid, tid) = (Oid(oid), Tid(storage.last_tid().0 + 1000 + oid));
    let change = |writer: &mut Writer<'_>| {
        let data_id = Some(writer.store(oid, &StoredData::plain(data))?);
        between();
        let metadata = TransactionMetadata::default();
        writer.insert_transaction((tid, tid), [oid].into_iter(), &metadata, false)?;
        writer.insert_record(tid, VotedRecord { oid, data_id, value_tid: None }).map(|_| ())
    };
    storage.database().write(0, change).unwrap();
    tid
}

fn count(database: &Database, table: &str) -> u64 {
    let count = format!("SELECT COUNT(*) FROM {table}");
    database.connect().query_first(count).unwrap().unwrap()
}

fn kill_connections(database: &Database) {
    let mut connection = database.connect();
    let find = "SELECT id FROM information_schema.processlist \
         WHERE db = DATABASE() AND id <> CONNECTION_ID()";
    let ids: Vec<u64> = connection.query(find).unwrap();
    assert!(!ids.is_empty());
    for id in ids {
        connection.query_drop(format!("KILL {id}")).unwrap();
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_transaction_goes_on_after_its_connection_is_lost() {
    let database = Server::start().database();
    let storage = open(&database);
    let tid = write(&storage, 1, b"one", || kill_connections(&database));
    kill_connections(&database);
    let row = storage.database().load_at(Oid(1), tid).unwrap().unwrap();
    assert_eq!(row.data.unwrap().value, b"one");
    write(&storage, 2, b"two", || ());
    assert_eq!((count(&database, "trans"), count(&database, "data")), (2, 2));
}

/// A storage with one transaction, and what can cut its connections.
fn behind_a_cutter() -> (Database, Cutter, SqlStorage) {
    let database = Server::start().database();
    let cutter = Cutter::start(database.socket());
    let storage = SqlStorage::open(&database.options_behind(&cutter.socket(), 1)).unwrap();
    write(&storage, 1, b"one", || ());
    (database, cutter, storage)
}

#[test]
#[ignore = "needs MariaDB"]
fn a_commit_whose_answer_is_lost_has_happened_once() {
    let (database, cutter, storage) = behind_a_cutter();
    cutter.cut_after_commit();
    write(&storage, 2, b"two", || ());
    cutter.cut_before_commit();
    write(&storage, 3, b"three", || ());
    write(&storage, 4, b"four", || ());
    assert_eq!(cutter.cuts(), 2);
    assert_eq!((count(&database, "trans"), count(&database, "data")), (4, 4));
}

#[test]
#[ignore = "needs MariaDB"]
fn a_lost_session_that_the_server_takes_for_alive_locks_nothing() {
    let (database, cutter, storage) = behind_a_cutter();
    cutter.cut_half_before_commit();
    write(&storage, 2, b"two", || ());
    assert_eq!(cutter.cuts(), 1);
    assert_eq!((count(&database, "trans"), count(&database, "data")), (2, 2));
}

#[test]
#[ignore = "needs MariaDB"]
fn a_process_whose_database_was_taken_over_writes_no_more() {
    let database = Server::start().database();
    let storage = open(&database);
    support::commit(&storage, vec![support::data(1, "first")]);
    let take = "UPDATE config SET value = '0000000000000001 99 0' WHERE name = 'zodium'";
    database.connect().query_drop(take).unwrap();
    let prepared = support::prepare(&storage, vec![support::data(1, "second")]).unwrap();
    let refused = storage.commit(vec![(Tid(storage.last_tid().0 + 1), prepared)]).unwrap_err();
    assert!(matches!(refused, StorageError::Changed(_)), "{refused}");
    assert!(storage.reopen().is_err());
    drop(storage);
    let storage = open(&database);
    assert_eq!(support::current(&storage, 1).as_deref(), Some("first"));
    support::commit(&storage, vec![support::data(1, "third")]);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_transaction_that_no_row_holds_is_refused_at_the_vote() {
    let database = Server::start().database();
    let storage = open(&database);
    let delete = |oid| support::record(oid, NewBody::Deleted);
    let error = support::prepare(&storage, (0..1 << 21).map(delete).collect()).unwrap_err();
    assert!(error.to_string().contains("2097152 objects"), "{error}");
    assert!(matches!(error, StorageError::Unsupported { .. }), "{error}");
    let description = vec![b'x'; 65_536];
    let metadata = TransactionMetadata { description, ..TransactionMetadata::default() };
    let (status, records) = (TransactionStatus::Normal, vec![support::data(1, "one")]);
    let long = NewTransaction { status, metadata, records };
    let error = storage.prepare(long, Access::Blocking).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("description has 65536 bytes"), "{error}");
    support::commit(&storage, vec![support::data(1, "one")]);
}

/// The server was away for so long that the commit was reported as failed.
#[test]
#[ignore = "needs MariaDB"]
fn a_commit_that_was_given_up_and_has_happened_is_taken_back() {
    let database = Server::start().database();
    let storage = open(&database);
    support::commit(&storage, vec![support::data(1, "first")]);
    let mut connection = database.connect();
    connection.query_drop("RENAME TABLE obj TO away").unwrap();
    let tid = Tid(storage.last_tid().0 + 1);
    let prepared = support::prepare(&storage, vec![support::data(1, "second")]).unwrap();
    storage.commit(vec![(tid, prepared)]).unwrap_err();
    connection.query_drop("RENAME TABLE away TO obj").unwrap();
    // What its COMMIT would have left.
    let last = storage.last_tid().0;
    for statement in [
        "INSERT INTO data SELECT id + 1, hash, compression, value FROM data".to_owned(),
        format!("INSERT INTO obj SELECT `partition`, oid, {}, data_id + 1, NULL FROM obj", tid.0),
        format!(
            "INSERT INTO trans SELECT `partition`, {0}, packed, oids, user, description, ext, {0} \
             FROM trans WHERE tid = {last}",
            tid.0
        ),
        "UPDATE config SET value = CONCAT(SUBSTRING_INDEX(value, ' ', 2), ' ', \
         SUBSTRING_INDEX(value, ' ', -1) + 1) WHERE name = 'zodium'"
            .to_owned(),
    ] {
        connection.query_drop(&statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    assert_eq!((count(&database, "trans"), count(&database, "data")), (2, 2));
    storage.reopen().unwrap();
    assert_eq!((count(&database, "trans"), count(&database, "data")), (1, 1));
    assert_eq!(support::current(&storage, 1).as_deref(), Some("first"));
    support::commit(&storage, vec![support::data(1, "third")]);
    assert_eq!(support::current(&storage, 1).as_deref(), Some("third"));
}

#[test]
#[ignore = "needs MariaDB"]
fn large_data_are_whole_although_a_pack_drops_them_meanwhile() {
    let database = Server::start().database();
    let cutter = Cutter::start(database.socket());
    let storage = SqlStorage::open(&database.options_behind(&cutter.socket(), 1)).unwrap();
    // In pieces, from 16 MiB on.
    let first = support::commit(&storage, vec![support::noise(1, 900_000)]);
    let second = support::commit(&storage, vec![support::data(1, "small")]);
    let held = cutter.hold_large_data();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| storage.database().load_at(Oid(1), first));
        cutter.wait_until_held();
        support::pack(&storage, second, false).unwrap();
        assert_eq!(count(&database, "bigdata"), 0);
        drop(held);
        let row = load.join().unwrap().unwrap().unwrap();
        assert_eq!(row.data.unwrap().value.len(), 18_000_000);
    });
    assert!(storage.database().load_at(Oid(1), first).unwrap().is_none());
}
