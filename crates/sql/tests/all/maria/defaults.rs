//! Defaults of a server that make no difference.

use bytes::Bytes;
use mysql::prelude::Queryable;
use zodium_sql::SqlStorage;
use zodium_storage::{Access, Load, NewBody, Read};
use zodium_storage_kit::packs::referring;
use zodium_types::{Oid, Tid};

use super::server::Server;
use super::waits::create_user;
use crate::support;

/// More objects than a query gives by default.
const OBJECTS: u64 = 9;

#[test]
#[ignore = "needs MariaDB"]
fn objects_beyond_a_limit_of_queries_are_in_use() {
    let server = Server::new();
    let database = server.database();
    let set = "SET GLOBAL sql_select_limit = 2, GLOBAL sql_safe_updates = 1";
    database.connect().query_drop(set).unwrap();
    let storage = SqlStorage::open(&database.options(1)).unwrap();
    let older = support::commit(&storage, vec![referring(0, &[])]);
    let until = support::commit(&storage, vec![referring(0, &[])]);
    let later = (1..=OBJECTS).map(|oid| referring(oid, &[])).collect();
    support::commit(&storage, later);
    assert_eq!(support::pack(&storage, until, true).unwrap().objects_after, OBJECTS + 1);
    assert_eq!(storage.load_serial(Oid(0), older).unwrap(), None);
    let is_kept = |oid: &u64| storage.current_serial(Oid(*oid)).unwrap().is_some();
    let kept = (0..=OBJECTS).filter(is_kept).count();
    assert_eq!(kept as u64, OBJECTS + 1);
}

#[test]
#[ignore = "needs MariaDB"]
fn data_are_stored_as_they_are_whatever_the_character_set() {
    let server = Server::new();
    // No text in UTF-8.
    let data: Vec<u8> = (0..=u8::MAX).rev().collect();
    for set in ["SET collation_connection = utf8_unicode_ci", "SET character_set_client = latin1"] {
        let database = server.database();
        create_user(&database, 10);
        let set = format!("SET GLOBAL init_connect = '{set}'");
        database.connect().query_drop(set).unwrap();
        let options = database.options_of("few", &database.socket(), 1);
        let storage = SqlStorage::open(&options).unwrap();
        let body = NewBody::Data(Bytes::from(data.clone()));
        support::commit(&storage, vec![support::record(1, body)]);
        let found = storage.load_before(Oid(1), Tid::MAX, Access::Blocking).unwrap();
        assert!(matches!(found, Load::Revision(found) if found.data == data));
    }
}
