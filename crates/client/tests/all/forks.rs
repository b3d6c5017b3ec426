//! A client in a forked child: [`Client::after_fork_in_child`] is called here without a fork, as if
//! this process were the child.

use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::thread;

use crate::common::peer::{ALL, Peer, SILENCE, play, wait_until};
use crate::common::{Server, commit, record};
use zodium_client::{Client, Options, WarmUpList};
use zodium_types::{Address, Oid, Tid};
use zodium_zeo::codec::Encoding;

#[test]
fn a_forked_child_is_told_that_objects_of_its_parent_may_be_stale_before_its_first_transaction() {
    let (told, is_told) = mpsc::channel();
    let script = move |listener: &UnixListener| {
        let _parents = Peer::admitted(listener, Tid(10));
        let mut peer = Peer::accept(listener);
        peer.admit(Tid(12), |_| is_told.recv().unwrap());
    };
    play(script, |client, log| {
        assert_eq!((client.last_tid(), log.0.lock().clone()), (Tid(10), vec![]));
        client.after_fork_in_child().unwrap();
        wait_until(|| client.last_tid() == Tid(12));
        assert_eq!(*log.0.lock(), [(ALL, vec![])]);
        told.send(()).unwrap();
        client.wait().unwrap();
    });
}

#[test]
fn the_first_transaction_of_a_forked_child_is_that_of_its_connection() {
    let (asked, is_asked) = mpsc::channel();
    let script = move |listener: &UnixListener| {
        let _parents = Peer::admitted(listener, Tid(10));
        let mut peer = Peer::accept(listener);
        is_asked.recv().unwrap();
        peer.admit(Tid(12), |_| ());
    };
    play(script, |client, _| {
        client.after_fork_in_child().unwrap();
        assert_eq!(client.last_tid_at_once(), None);
        thread::scope(|scope| {
            let first = scope.spawn(|| client.last_tid_of_server().unwrap());
            thread::sleep(SILENCE);
            assert!(!first.is_finished());
            asked.send(()).unwrap();
            assert_eq!(first.join().unwrap(), Tid(12));
        });
        assert_eq!(client.last_tid_at_once(), Some(Tid(12)));
    });
}

#[test]
fn a_forked_child_has_a_connection_of_its_own_and_no_file_of_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let server = Server::start(Encoding::Msgpack);
    let writer = server.client();
    commit(&writer, &[(1, "one")]);
    let options = Options {
        addresses: vec![Address::Unix(folder.path().join("left"))],
        cache_path: Some(files.join("cache")),
        warm_up: WarmUpList::File(files.join("warm-up")),
        wait: false,
        ..server.options()
    };
    let client = Client::connect(options).unwrap();
    client.set_addresses(server.options().addresses).unwrap();
    client.load_current(Oid(1)).unwrap();
    // The parent's files, out of the way: any that appear are the child's.
    std::fs::remove_dir_all(&files).unwrap();
    std::fs::create_dir(&files).unwrap();
    client.after_fork_in_child().unwrap();
    // The child uses the server that the parent used, and has nothing in its cache.
    client.sync().unwrap();
    assert_eq!(client.cache_metrics().objects, 0);
    assert_eq!(client.load_current(Oid(1)).unwrap().data, record("one"));
    commit(&client, &[(1, "two")]);
    client.close();
    let left: Vec<_> =
        std::fs::read_dir(&files).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}
