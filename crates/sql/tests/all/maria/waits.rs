//! Readers wait for a server that takes no connection now.

use std::io::ErrorKind;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use mysql::prelude::Queryable;
use zodium_sql::{Location, MariaAddress, SqlOptions, SqlStorage};
use zodium_storage::{Access, Read};
use zodium_types::{Oid, Tid};

use super::server::{Database, Server};
use crate::support;

const READERS: u32 = 8;
const LOADS: u32 = 40;

/// Creates a user `few` with so many connections, of which one writes.
pub(super) fn create_user(database: &Database, connections: u32) {
    let mut connection = database.connect();
    for statement in [
        &format!("CREATE OR REPLACE USER few@localhost WITH MAX_USER_CONNECTIONS {connections}"),
        &format!("GRANT ALL ON {}.* TO few@localhost", database.name()),
    ] {
        connection.query_drop(statement).unwrap();
    }
}

fn load_at_once(storage: &SqlStorage, expected: &str) {
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                for _ in 0..LOADS {
                    assert_eq!(support::current(storage, 1).as_deref(), Some(expected));
                }
            });
        }
    });
}

fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

#[test]
#[ignore = "needs MariaDB"]
fn loads_share_the_connections_that_a_user_may_have() {
    let database = Server::start().database();
    create_user(&database, 3);
    let options = database.options_of("few", &database.socket(), 1);
    let storage = SqlStorage::open(&options).unwrap();
    support::commit(&storage, vec![support::data(1, "one")]);
    load_at_once(&storage, "one");
}

#[test]
#[ignore = "needs MariaDB"]
fn loads_do_not_go_to_another_server_that_may_be_behind() {
    let [port, other_port] = free_ports();
    let (server, other) = (Server::listening(port), Server::listening(other_port));
    let (database, copy) = (server.database(), other.database());
    create_user(&database, 3);
    create_user(&copy, 100);
    let behind = SqlStorage::open(&copy.options(1)).unwrap();
    support::commit(&behind, vec![support::data(1, "old")]);
    drop(behind);
    let name = database.name();
    let url = format!("mysql://few@127.0.0.1:{port},127.0.0.1:{other_port}/{name}");
    let location = Location::Maria(MariaAddress::of_url(&url).unwrap());
    let options = SqlOptions { location, ..database.options(1) };
    let storage = SqlStorage::open(&options).unwrap();
    support::commit(&storage, vec![support::data(1, "new")]);
    load_at_once(&storage, "new");
}

/// A way to a server, until it is dropped.
struct Relay {
    port: u16,
    streams: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Relay {
    fn to(port: u16) -> Relay {
        Relay::between(0, port)
    }

    /// At a port of its own, which an ended relay may have left just now.
    fn between(own: u16, port: u16) -> Relay {
        let listener = loop {
            match TcpListener::bind(("127.0.0.1", own)) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    sleep(Duration::from_millis(10));
                }
                bound => break bound.unwrap(),
            }
        };
        let own = listener.local_addr().unwrap().port();
        let streams = Arc::new(Mutex::new(Some(Vec::new())));
        let shared = Arc::clone(&streams);
        std::thread::spawn(move || {
            for client in listener.incoming().map(Result::unwrap) {
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let mut streams = shared.lock().unwrap();
                let Some(streams) = &mut *streams else { return };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
                streams.extend([client, server]);
            }
        });
        Relay { port: own, streams }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        for stream in self.streams.lock().unwrap().take().unwrap() {
            stream.shutdown(Shutdown::Both).ok();
        }
        // The listener ends.
        TcpStream::connect(("127.0.0.1", self.port)).ok();
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn loads_and_commits_go_to_another_host_when_theirs_is_gone() {
    let [port, _] = free_ports();
    let server = Server::listening(port);
    let database = server.database();
    create_user(&database, 100);
    let relay = Relay::to(port);
    let name = database.name();
    let url = format!("mysql://few@127.0.0.1:{},127.0.0.1:{port}/{name}", relay.port);
    let location = Location::Maria(MariaAddress::of_url(&url).unwrap());
    let options = SqlOptions { location, ..database.options(1) };
    let storage = SqlStorage::open(&options).unwrap();
    support::commit(&storage, vec![support::data(1, "one")]);
    drop(relay);
    load_at_once(&storage, "one");
    support::commit(&storage, vec![support::data(1, "two")]);
    load_at_once(&storage, "two");
}

#[test]
#[ignore = "needs MariaDB"]
fn a_load_without_an_idle_connection_waits_for_a_server_that_is_away() {
    let database = Server::start().database();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    symlink(database.socket(), &socket).unwrap();
    let storage = SqlStorage::open(&database.options_behind(&socket, 1)).unwrap();
    support::commit(&storage, vec![support::data(1, "one")]);
    // A connection whose query was refused is not used again.
    let mut connection = database.connect();
    connection.query_drop("RENAME TABLE obj TO away").unwrap();
    storage.load_before(Oid(1), Tid::MAX, Access::Blocking).unwrap_err();
    connection.query_drop("RENAME TABLE away TO obj").unwrap();
    std::fs::remove_file(&socket).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sleep(Duration::from_millis(300));
            symlink(database.socket(), &socket).unwrap();
        });
        assert_eq!(support::current(&storage, 1).as_deref(), Some("one"));
    });
}

/// The row of `config` that says how much of which process is in a database.
fn owner(database: &Database) -> Option<String> {
    let find = "SELECT value FROM config WHERE name = 'zodium'";
    database.connect().query_first(find).unwrap()
}

#[test]
#[ignore = "needs MariaDB"]
fn loads_go_to_another_server_only_while_it_has_all_commits() {
    let [port, other_port] = free_ports();
    let (server, other) = (Server::listening(port), Server::listening(other_port));
    let (database, copy) = (server.database(), other.database());
    create_user(&database, 100);
    create_user(&copy, 100);
    let replica = SqlStorage::open(&copy.options(1)).unwrap();
    support::commit(&replica, vec![support::data(1, "old")]);
    drop(replica);
    let relay = Relay::to(port);
    let (own, name) = (relay.port, database.name());
    let url = format!("mysql://few@127.0.0.1:{own},127.0.0.1:{other_port}/{name}");
    let location = Location::Maria(MariaAddress::of_url(&url).unwrap());
    let storage = SqlStorage::open(&SqlOptions { location, ..database.options(1) }).unwrap();
    support::commit(&storage, vec![support::data(1, "old")]);
    let set = "UPDATE config SET value = ? WHERE name = 'zodium'";
    copy.connect().exec_drop(set, (owner(&database),)).unwrap();
    drop(relay);
    load_at_once(&storage, "old");
    let relay = Relay::between(own, port);
    let tid = support::commit(&storage, vec![support::data(1, "new")]);
    load_at_once(&storage, "new");
    drop(relay);
    std::thread::scope(|scope| {
        let relay = scope.spawn(|| {
            sleep(Duration::from_millis(500));
            Relay::between(own, port)
        });
        // The replica would refuse it, as the commit before is not there.
        support::commit(&storage, vec![support::data(2, "two")]);
        assert_eq!(support::current(&storage, 1).as_deref(), Some("new"));
        drop(relay.join().unwrap());
    });
    assert!(storage.last_tid() > tid);
}

#[test]
#[ignore = "needs MariaDB"]
fn iterators_beside_a_pack_share_a_connection() {
    // Its user has another limit than those of other tests.
    let server = Server::new();
    let database = server.database();
    create_user(&database, 4);
    let options = database.options_of("few", &database.socket(), 1);
    let storage = SqlStorage::open(&options).unwrap();
    let revisions = ["one", "two", "three"];
    let tids = revisions.map(|text| support::commit(&storage, vec![support::data(1, text)]));
    let mut iterators: Vec<_> = (0..10).map(|_| storage.iterate(None, None).unwrap()).collect();
    for iterator in &mut iterators {
        assert_eq!(iterator.step().unwrap().unwrap().tid, tids[0]);
    }
    support::pack(&storage, tids[2], false).unwrap();
    assert_eq!(support::current(&storage, 1).as_deref(), Some("three"));
    for iterator in &mut iterators {
        assert_eq!(iterator.step().unwrap().unwrap().tid, tids[1]);
        let mut records = iterator.records().unwrap();
        assert_eq!(records.step().unwrap().unwrap().data.unwrap(), "two");
    }
}
