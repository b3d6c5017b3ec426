//! A storage on a server, read like one of this process.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Poll;

use crate::common::peer::{Peer, play};
use crate::common::stock_log::{Logged, serve_log};
use crate::common::{Server, commit, commit_root, record};
use zodium_client::{
    Access, Client, ClientError, Options, ServerStorage, Transaction, TransactionOptions,
};
use zodium_disk::MemoryDisk;
use zodium_filestorage::{FileStorage, OpenOptions};
use zodium_pickle::Value;
use zodium_storage::{Access as Reading, Load, LogItem, Read, StorageError};
use zodium_types::{Address, Oid, Tid, TransactionStatus};
use zodium_zeo::codec::Encoding;

fn served(server: &Server) -> ServerStorage {
    let options = server.options();
    ServerStorage::new(Arc::new(server.client()), &options.addresses)
}

/// The file of a server, opened in this process.
fn opened(server: &Server) -> FileStorage {
    let disk = MemoryDisk::volatile();
    disk.put(std::path::Path::new("Data.fs"), server.data());
    let options = OpenOptions { read_only: true, create: false, ..OpenOptions::new("Data.fs") };
    FileStorage::open(Arc::new(disk), &options).unwrap()
}

/// All items of a log as text. A walk ends after `items_max`, and says whether that was the end.
fn log_of(storage: &dyn Read, with_records: bool, items_max: usize) -> (Vec<String>, bool) {
    let mut items = Vec::new();
    let mut cursor = storage.iterate(None, None).unwrap();
    let is_whole = cursor.read(with_records, &mut |item| {
        // A mark that a storage need not make.
        if item == LogItem::Skipped {
            return ControlFlow::Continue(());
        }
        items.push(match item {
            LogItem::Transaction { tid, status, user, description, extension } => {
                format!("{tid} {status:?} {user:?} {description:?} {extension:?}")
            }
            LogItem::Record { oid, data, data_tid } => format!("{oid} {data:?} {data_tid:?}"),
            LogItem::Skipped => "skipped".to_owned(),
        });
        match items.len() < items_max {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    (items, is_whole.unwrap())
}

/// The metadata of all transactions, one step each.
fn heads_of(storage: &dyn Read) -> Vec<String> {
    let mut cursor = storage.iterate(None, None).unwrap();
    let next = || cursor.step().unwrap().map(|head| (head.tid, head.status, head.metadata));
    std::iter::from_fn(next).map(|head| format!("{head:?}")).collect()
}

#[test]
fn a_storage_on_a_server_says_what_its_file_says() {
    let server = Server::start(Encoding::Pickle);
    let client = server.client();
    let first = commit_root(&client);
    let second = commit(&client, &[(0, "new root"), (1, "one"), (7, "seven")]);
    let (file, served) = (opened(&server), served(&server));
    assert_eq!(served.last_tid(), second);
    assert_eq!((served.object_count(), served.size()), (file.object_count(), file.size()));
    assert!(served.last_oid() >= file.last_oid(), "a server does not tell its last oid");
    for before in [first, first.next(), second, second.next(), Tid::MAX] {
        for oid in [0, 1, 7, 9].map(Oid) {
            let answer = |storage: &dyn Read| match storage
                .load_before(oid, before, Reading::Blocking)
                .unwrap()
            {
                Load::Revision(found) => Some((found.data, found.serial, found.end)),
                Load::NoRevision | Load::Missing => None,
                Load::WouldBlock => panic!("a load that may block"),
            };
            assert_eq!(answer(&served), answer(&file), "{oid} before {before}");
        }
    }
    for asked in [[(Oid(0), second), (Oid(0), Tid::MAX)], [(Oid(0), Tid::MAX), (Oid(1), Tid::MAX)]]
    {
        let answers = |storage: &dyn Read| -> Vec<_> {
            let loaded = storage.load_many_before(&asked).into_iter().map(Result::unwrap);
            let revision = |load| match load {
                Load::Revision(found) => (found.data, found.serial, found.end),
                other => panic!("{other:?}"),
            };
            loaded.map(revision).collect()
        };
        assert_eq!(answers(&served), answers(&file));
    }
    for serial in [first, second, second.next()] {
        let data = |storage: &dyn Read| {
            let record = storage.record(Oid(0), serial).unwrap();
            record.map(|record| (record.data, record.data_tid))
        };
        assert_eq!(data(&served), data(&file), "serial {serial}");
    }
    let oids = |storage: &dyn Read| {
        let mut from = Some(Oid(0));
        let step = || {
            let step = storage.next_object(from?).unwrap()?;
            from = step.following;
            Some((step.oid, step.serial, step.data))
        };
        std::iter::from_fn(step).collect::<Vec<_>>()
    };
    assert_eq!(oids(&served), oids(&file));
    assert_eq!(oids(&served).len(), 3);
    assert!(served.next_object(Oid(8)).unwrap().is_none());
    assert_eq!(heads_of(&served), heads_of(&file));
    assert_eq!(heads_of(&served).len(), 2);
    for with_records in [false, true] {
        let whole = log_of(&file, with_records, usize::MAX);
        assert_eq!(log_of(&served, with_records, usize::MAX), whole);
        assert_eq!(whole.0.len(), if with_records { 6 } else { 2 });
        for items_max in 1..=whole.0.len() {
            let (items, is_whole) = log_of(&served, with_records, items_max);
            assert_eq!((&items[..], is_whole), (&whole.0[..items_max], false));
        }
    }
}

#[test]
fn what_a_server_cannot_tell_at_once_or_at_all_is_not_made_up() {
    let server = Server::start(Encoding::Msgpack);
    let tid = commit(&server.client(), &[(1, "one")]);
    let served = served(&server);
    let load = served.load_before(Oid(1), Tid::MAX, Reading::NonBlocking).unwrap();
    assert!(matches!(load, Load::WouldBlock));
    assert_eq!(served.poll_serial(Oid(1), Reading::NonBlocking).unwrap(), Poll::Pending);
    assert_eq!(served.poll_serial(Oid(1), Reading::Blocking).unwrap(), Poll::Ready(Some(tid)));
    assert_eq!(served.poll_serial(Oid(2), Reading::Blocking).unwrap(), Poll::Ready(None));
    let Load::Revision(found) = served.load_before(Oid(1), Tid::MAX, Reading::Blocking).unwrap()
    else {
        panic!("it is there");
    };
    assert!(!served.is_still_current(Oid(1), found.stamp));
    assert!(!served.keeps_back_pointers());
    assert!(matches!(served.recent(1), Err(StorageError::Unsupported { .. })));
    // The records of a transaction come with its head only.
    let mut cursor = served.iterate(None, None).unwrap();
    assert_eq!(cursor.step().unwrap().unwrap().tid, tid);
    assert!(cursor.records().is_none());
}

#[test]
fn a_history_goes_on_behind_the_end_of_an_object() {
    for encoding in [Encoding::Pickle, Encoding::Msgpack] {
        let server = Server::start(encoding);
        let client = server.client();
        let root = commit_root(&client);
        let first = commit(&client, &[(0, "root"), (1, "one")]);
        let changed = |change: &dyn Fn(&mut Transaction) -> Result<(), ClientError>| {
            let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
            change(&mut transaction).unwrap();
            transaction.vote().unwrap();
            transaction.finish(|_| ()).unwrap()
        };
        let end = changed(&|it| it.delete(Oid(1), first));
        let last = changed(&|it| it.store(Oid(1), end, record("uno")));
        let (file, served) = (opened(&server), served(&server));
        let history = |storage: &dyn Read, oid, count| -> Vec<_> {
            let entries = storage.history(oid, count).unwrap().into_iter();
            entries.map(|it| (it.transaction.tid, it.size, it.transaction.metadata)).collect()
        };
        for (oid, tids) in [(0, &[first, root][..]), (1, &[last, end, first]), (9, &[])] {
            for count in 0..4 {
                let found = history(&served, Oid(oid), count);
                assert_eq!(found, history(&file, Oid(oid), count), "{count} of {oid}");
                let found: Vec<_> = found.into_iter().map(|(tid, ..)| tid).collect();
                assert_eq!(found, tids[..count.min(tids.len())]);
            }
        }
    }
}

#[test]
fn many_loads_are_answered_as_single_ones_whether_or_not_they_are_of_one_time() {
    let server = Server::start(Encoding::Pickle);
    let client = server.client();
    let first = commit(&client, &[(1, "one"), (2, "two")]);
    let second = commit(&client, &[(1, "uno")]);
    let served = served(&server);
    assert!(served.loads_at_once() > 1, "a request each would wait for the one before");
    let then = first.next();
    for asked in [
        vec![],
        vec![(Oid(1), then), (Oid(2), then), (Oid(9), then)],
        vec![(Oid(1), then), (Oid(1), second.next()), (Oid(9), Tid::MAX), (Oid(2), first)],
    ] {
        let shown = |load: Result<Load, StorageError>| match load.unwrap() {
            Load::Revision(found) => format!("{:?} {} {:?}", found.data, found.serial, found.end),
            Load::NoRevision => "no revision".to_owned(),
            Load::Missing => "missing".to_owned(),
            Load::WouldBlock => panic!("a load that may block"),
        };
        let one = |(oid, before): &(Oid, Tid)| served.load_before(*oid, *before, Reading::Blocking);
        let singly: Vec<_> = asked.iter().map(|asked| shown(one(asked))).collect();
        let at_once: Vec<_> = served.load_many_before(&asked).into_iter().map(shown).collect();
        assert_eq!(at_once, singly);
    }
}

#[test]
fn a_storage_is_called_by_the_addresses_of_its_servers_and_is_as_writable_as_its_client() {
    let server = Server::start(Encoding::Msgpack);
    let addresses = [
        Address::Tcp { host: "db.example".to_owned(), port: 8100 },
        Address::Unix("/run/zeo.sock".into()),
    ];
    for access in [Access::ReadWrite, Access::ReadOnly] {
        let client = Client::connect(Options { access, ..server.options() }).unwrap();
        let storage = ServerStorage::new(Arc::new(client), &addresses);
        assert_eq!(storage.name(), "('db.example', 8100), /run/zeo.sock (connected)");
        assert_eq!(storage.is_read_only(), access == Access::ReadOnly);
    }
}

#[test]
fn a_missing_record_is_none_and_a_server_that_fails_is_an_error() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            for exception in [
                "ZODB.POSException.POSKeyError",
                "builtins.OSError",
                "ZODB.FileStorage.FileStorage.CorruptedDataError",
            ] {
                let load = peer.expect("loadSerial");
                peer.fail(&load, exception);
            }
            for exception in ["builtins.ValueError", "builtins.OSError"] {
                let next = peer.expect("record_iternext");
                peer.fail(&next, exception);
            }
        },
        |client, _| {
            let storage = ServerStorage::new(Arc::clone(client), &[]);
            let record = || storage.record(Oid(1), Tid(5));
            assert!(record().unwrap().is_none());
            assert!(matches!(record(), Err(StorageError::Io(_))));
            assert!(matches!(record(), Err(StorageError::Corrupt(_))));
            assert!(storage.next_object(Oid(1)).unwrap().is_none());
            assert!(matches!(storage.next_object(Oid(1)), Err(StorageError::Io(_))));
        },
    );
}

#[test]
fn loads_of_one_time_are_requested_together() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let loads = [(); 3].map(|()| peer.expect("loadBefore"));
            loads.iter().for_each(|load| peer.reply_load(load, b"data", Tid(5)));
        },
        |client, _| {
            let storage = ServerStorage::new(Arc::clone(client), &[]);
            let loaded = storage.load_many_before(&[1, 2, 3].map(|oid| (Oid(oid), Tid(11))));
            assert_eq!(loaded.len(), 3);
            for load in loaded {
                assert!(matches!(load, Ok(Load::Revision(_))));
            }
        },
    );
}

#[test]
fn a_history_of_no_object_is_empty_and_one_that_a_server_refuses_is_an_error() {
    let refusals = [
        "ZODB.POSException.POSKeyError",
        "builtins.ValueError",
        "ZODB.FileStorage.format.CorruptedDataError",
    ];
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            for exception in refusals {
                let history = peer.expect("history");
                peer.fail(&history, exception);
            }
            let history = peer.expect("history");
            peer.reply(&history, Value::None);
            peer.expect("history");
        },
        |client, _| {
            let storage = ServerStorage::new(Arc::clone(client), &[]);
            let history = || storage.history(Oid(1), 5);
            assert!(history().unwrap().is_empty());
            let refused = history().map(drop).unwrap_err();
            assert!(matches!(refused, StorageError::Unsupported { .. }), "{refused:?}");
            let damaged = history().map(drop).unwrap_err();
            assert!(matches!(damaged, StorageError::Corrupt(_)), "{damaged:?}");
            let nonsense = history().map(drop).unwrap_err();
            assert!(matches!(nonsense, StorageError::Other(_)), "{nonsense:?}");
            let lost = history().map(drop).unwrap_err();
            assert!(matches!(lost, StorageError::Io(_)), "{lost:?}");
        },
    );
}

/// It sends a dict instead of the pickle in its file.
#[test]
fn the_extension_that_a_stock_server_sends_becomes_a_pickle_with_sorted_keys() {
    let sorted = b"\x80\x03}(X\x01\x00\x00\x00aK\x02X\x01\x00\x00\x00bK\x01u.";
    for (extension, expected) in [
        (Value::dict::<&str>([]), Some(&b""[..])),
        (Value::dict([("b", 1.into()), ("a", 2.into())]), Some(&sorted[..])),
        (Value::from(b"no dict"), None),
    ] {
        let log = [Logged { extension, ..Logged::default() }];
        play(
            move |listener| {
                let mut peer = Peer::admitted(listener, Tid(10));
                serve_log(&mut peer, &log);
            },
            |client, _| {
                let storage = ServerStorage::new(Arc::clone(client), &[]);
                let head = storage.iterate(None, None).unwrap().step();
                match expected {
                    Some(expected) => {
                        let head = head.unwrap().unwrap();
                        assert_eq!(head.status, TransactionStatus::default());
                        assert_eq!(head.metadata.extension, expected);
                    }
                    None => assert!(head.is_err()),
                }
                client.sync().unwrap();
            },
        );
    }
}
