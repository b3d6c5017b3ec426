//! The same storage over a server and from its file.

use std::sync::Arc;

use crate::common::{Server, commit, commit_root, extension, record};
use zodium_client::{ClientError, CommittedTransaction, Database, Options, ServerStorage};
use zodium_disk::RealDisk;
use zodium_filestorage::{FileStorage, OpenOptions};
use zodium_types::Oid;
use zodium_zeo::codec::Encoding;

fn transactions(database: &Database) -> Vec<CommittedTransaction> {
    database.iterate(None, None).unwrap().map(Result::unwrap).collect()
}

fn open_file(url: &str) -> Result<Database, ClientError> {
    Database::open_with(url, |path| {
        let options = OpenOptions { read_only: true, create: false, ..OpenOptions::new(path) };
        Ok(Arc::new(FileStorage::open(Arc::new(RealDisk), &options)?))
    })
}

#[test]
fn a_file_says_what_its_server_says() {
    let server = Server::start(Encoding::Pickle);
    let client = server.client();
    let first = commit_root(&client);
    let second = commit(&client, &[(0, "new root"), (1, "one")]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("Data file.fs");
    std::fs::write(&path, server.data()).unwrap();
    let url = format!("file://{}", path.display()).replace(' ', "%20");
    let file = open_file(&url).unwrap();
    let served = Database::open(&format!("zeo://{}", server.path().display())).unwrap();
    assert_eq!(transactions(&file), transactions(&served));
    assert_eq!(transactions(&file)[0].extension, extension());
    let storage = ServerStorage::new(Arc::new(server.client()), &server.options().addresses);
    assert_eq!(transactions(&file), transactions(&Database::Stored(Arc::new(storage))));
    for database in [&file, &served] {
        assert_eq!(database.last_tid().unwrap(), second);
        let (then, now) = (database.view(first), database.now().unwrap());
        assert_eq!((then.tid(), now.tid()), (first, second));
        then.prefetch(&[Oid(0)]);
        let oids = [Oid(0), Oid(1), Oid(9)];
        let data = |found: Vec<Option<zodium_client::Revision>>| -> Vec<_> {
            found.into_iter().map(|revision| revision.map(|one| (one.data, one.end))).collect()
        };
        let old = [Some((record("root"), Some(second))), None, None];
        let new = [Some((record("new root"), None)), Some((record("one"), None)), None];
        assert_eq!(data(then.load_many(&oids).unwrap()), old);
        assert_eq!(data(now.load_many(&oids).unwrap()), new);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "files beside it");
}

#[test]
fn a_view_loads_ahead_what_it_is_told_to() {
    let server = Server::start(Encoding::Msgpack);
    commit(&server.client(), &[(0, "root"), (1, "one")]);
    let database = Database::connect(server.options()).unwrap();
    let Database::Server(client) = &database else { panic!("it is not on a server") };
    let now = database.now().unwrap();
    now.prefetch(&[Oid(0), Oid(1)]);
    // Its answer comes after those of the loads.
    client.sync().unwrap();
    assert_eq!(client.cache_metrics().objects, 2);
    assert_eq!(now.load(Oid(1)).unwrap().unwrap().data, record("one"));
}

#[test]
fn a_view_of_now_waits_for_the_first_connection() {
    let server = Server::start(Encoding::Msgpack);
    let tid = commit_root(&server.client());
    let database = Database::connect(Options { wait: false, ..server.options() }).unwrap();
    let now = database.now().unwrap();
    assert_eq!(now.tid(), tid);
    assert_eq!(now.load(Oid::ROOT).unwrap().unwrap().serial, tid);
}

#[test]
fn a_file_that_is_not_there_is_said_so_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let error = open_file(&format!("file://{}/no.fs", folder.path().display())).err().unwrap();
    assert!(error.to_string().contains("no.fs"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
