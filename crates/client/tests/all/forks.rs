//! A client in a forked child: [`Client::after_fork_in_child`] is called here without a fork, as if
//! this process were the child.

use crate::common::{Server, commit, record};
use zodium_client::{Client, Options, WarmUpList};
use zodium_types::{Address, Oid};
use zodium_zeo::codec::Encoding;

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
