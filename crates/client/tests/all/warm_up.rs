//! The warm-up: what one client loaded first, the next prefetches. A relay sees the requests.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zodium_client::{Client, Options, WarmUpList};
use zodium_types::{Address, Oid};
use zodium_zeo::codec::Encoding;

use crate::common::{Server, commit, record};
use crate::round_trips::Relay;

const OBJECTS: usize = 300;

struct Site {
    server: Server,
    folder: TempDir,
}

impl Site {
    fn start() -> Site {
        let server = Server::start(Encoding::Msgpack);
        let objects: Vec<_> = (0..OBJECTS as u64).map(|oid| (oid, "first")).collect();
        commit(&server.client(), &objects);
        Site { server, folder: tempfile::tempdir().unwrap() }
    }

    fn list(&self) -> PathBuf {
        self.folder.path().join("list")
    }

    /// The relay is always at the same address: the list is that of one source.
    fn open(&self) -> (Client, std::sync::Arc<Relay>) {
        self.open_with(|options| options)
    }

    fn open_with(
        &self,
        change: impl FnOnce(Options) -> Options,
    ) -> (Client, std::sync::Arc<Relay>) {
        let path = self.folder.path().join("relay");
        let _ = fs::remove_file(&path);
        let relay = Relay::start(&path, &self.server.path());
        let options = Options {
            addresses: vec![Address::Unix(path)],
            warm_up: WarmUpList::File(self.list()),
            ..self.server.options()
        };
        (Client::connect(change(options)).unwrap(), relay)
    }

    /// A run that loads everything, one object after the other.
    fn run(&self) {
        let (client, relay) = self.open();
        assert_eq!(read_all(&client), vec!["first"; OBJECTS]);
        assert_eq!(relay.loads(), OBJECTS);
    }
}

fn read_all(client: &Client) -> Vec<String> {
    let before = client.last_tid().next();
    let read = |oid| client.load_before(Oid(oid), before).unwrap().unwrap().data;
    (0..OBJECTS as u64).map(read).map(|data| text(&data)).collect()
}

/// What [`record`] has put into a data record.
fn text(data: &[u8]) -> String {
    let text = String::from_utf8(data[4..data.len() - 1].to_vec()).unwrap();
    assert_eq!(record(&text), data);
    text
}

#[test]
fn the_next_run_has_loaded_its_objects_before_it_asks() {
    let site = Site::start();
    site.run();
    let (client, relay) = site.open();
    relay.wait_for(OBJECTS);
    assert_eq!(read_all(&client), vec!["first"; OBJECTS]);
    assert_eq!(relay.loads(), OBJECTS);
}

/// Replies come only once a batch was requested: a client that waits for each would hang.
#[test]
fn a_batch_is_requested_before_the_first_is_answered() {
    let site = Site::start();
    site.run();
    let path = site.folder.path().join("relay");
    fs::remove_file(&path).unwrap();
    let relay = Relay::start_holding(&path, &site.server.path(), 256);
    let options = Options {
        addresses: vec![Address::Unix(path)],
        warm_up: WarmUpList::File(site.list()),
        ..site.server.options()
    };
    let client = Client::connect(options).unwrap();
    assert_eq!(read_all(&client), vec!["first"; OBJECTS]);
    assert_eq!(relay.loads(), OBJECTS);
}

#[test]
fn what_was_committed_meanwhile_is_shown() {
    let site = Site::start();
    site.run();
    commit(&site.server.client(), &[(7, "second")]);
    let (client, relay) = site.open();
    relay.wait_for(OBJECTS);
    let mut expected = vec!["first"; OBJECTS];
    expected[7] = "second";
    assert_eq!(read_all(&client), expected);
    commit(&site.server.client(), &[(8, "third")]);
    client.sync().unwrap();
    expected[8] = "third";
    assert_eq!(read_all(&client), expected);
}

#[test]
fn commits_beside_the_warm_up_are_never_missed() {
    let site = Site::start();
    site.run();
    let writer = site.server.client();
    for round in 0..20 {
        let (client, _relay) = site.open();
        let data = round.to_string();
        commit(&writer, &[(0, &data), (150, &data), (OBJECTS as u64 - 1, &data)]);
        client.sync().unwrap();
        let all = read_all(&client);
        assert_eq!([&all[0], &all[150], &all[OBJECTS - 1]], [&data; 3]);
    }
}

#[test]
fn a_damaged_list_is_replaced() {
    let site = Site::start();
    site.run();
    let whole = fs::read(site.list()).unwrap();
    for damaged in [&whole[..100], b"", &[0; 5000], &[&whole[..50], &[1; 3000][..]].concat()] {
        fs::write(site.list(), damaged).unwrap();
        site.run();
        assert_eq!(fs::read(site.list()).unwrap(), whole);
    }
}

#[test]
fn a_list_of_another_storage_is_replaced() {
    let site = Site::start();
    let other = Options { warm_up: WarmUpList::File(site.list()), ..site.server.options() };
    read_all(&Client::connect(other).unwrap());
    let foreign = fs::read(site.list()).unwrap();
    site.run();
    assert_ne!(fs::read(site.list()).unwrap(), foreign);
}

#[test]
fn objects_that_are_gone_cost_a_request_only() {
    let site = Site::start();
    site.run();
    let fresh = Site { server: Server::start(Encoding::Msgpack), folder: site.folder };
    commit(&fresh.server.client(), &[(0, "another")]);
    let (client, relay) = fresh.open();
    relay.wait_for(OBJECTS);
    let before = client.last_tid().next();
    assert_eq!(text(&client.load_before(Oid(0), before).unwrap().unwrap().data), "another");
    assert!(client.load_before(Oid(1), before).is_err());
}

#[test]
fn a_list_that_cannot_be_written_is_no_error() {
    let site = Site::start();
    let nowhere = WarmUpList::File(site.folder.path().join("missing/list"));
    let (client, relay) = site.open_with(|options| Options { warm_up: nowhere, ..options });
    read_all(&client);
    client.close();
    assert_eq!(relay.loads(), OBJECTS);
    assert!(!site.list().exists());
}

#[test]
fn the_list_is_beside_the_cache_unless_it_is_off() {
    let site = Site::start();
    let cache = site.folder.path().join("cache");
    let kept = |warm_up| {
        let cache_path = Some(cache.clone());
        let (client, _relay) = site.open_with(|options| Options { cache_path, warm_up, ..options });
        read_all(&client);
        client.close();
        Path::new(&format!("{}.warm-up", cache.display())).exists()
    };
    assert!(!kept(WarmUpList::Off));
    assert!(kept(WarmUpList::BesideCache));
}

/// Nothing but what has changed: the cache is kept beside the list.
#[test]
fn the_warm_up_asks_for_nothing_that_is_kept() {
    let site = Site::start();
    let cache_path = Some(site.folder.path().join("cache"));
    let open = || site.open_with(|options| Options { cache_path: cache_path.clone(), ..options });
    let (client, _relay) = open();
    read_all(&client);
    client.close();
    commit(&site.server.client(), &[(7, "second"), (8, "third")]);
    let (client, relay) = open();
    relay.wait_for(2);
    assert_eq!(read_all(&client)[6..9], ["first", "second", "third"]);
    client.close();
    assert_eq!(relay.loads(), 2);
}

/// The list fills half of the cache at most: what the application loads itself stays.
#[test]
fn the_warm_up_evicts_nothing() {
    let many = 2000;
    let site = Site::start();
    let objects: Vec<_> = (0..many).map(|oid| (oid, "many")).collect();
    commit(&site.server.client(), &objects);
    let (client, _relay) = site.open();
    let oids: Vec<_> = (0..many).map(Oid).collect();
    client.load_many(&oids, client.last_tid().next()).unwrap();
    client.close();
    let small = 256 << 10;
    let (client, relay) = site.open_with(|options| Options { cache_bytes: small, ..options });
    while client.cache_metrics().bytes <= small / 2 {
        client.sync().unwrap();
    }
    // Time for the rest, if it were requested.
    (0..20).for_each(|_| client.sync().unwrap());
    assert_eq!(client.cache_metrics().evictions, 0);
    assert!(relay.loads() < oids.len(), "{}", relay.loads());
}
