//! What a transaction can do beside storing objects, and how it ends.

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::common::peer::{Peer, play, play_with};
use crate::common::switch::Switch;
use crate::common::{Server, commit, record};
use bytes::Bytes;
use zodium_client::{Client, ClientError, Interrupt, Options, Transaction, TransactionOptions};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// What ZODB stores for any blob.
const BLOB_RECORD: &[u8] = b"\x80\x03cZODB.blob\nBlob\nq\x00.\x80\x03N.";

fn begin(client: &Client) -> Transaction {
    client.begin(&TransactionOptions::default()).unwrap()
}

fn finish(mut transaction: Transaction) -> Tid {
    transaction.vote().unwrap();
    transaction.finish(|_| ()).unwrap()
}

/// The content of a blob, as the server sends it.
fn fetched(client: &Client, oid: Oid, serial: Tid) -> Result<Vec<u8>, ClientError> {
    let mut file = client.fetch_blob(oid, serial, tempfile::tempfile().unwrap())?;
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    Ok(content)
}

#[test]
fn a_blob_comes_back_as_it_was_sent() {
    // Around one chunk, and more than the server reads of a blob at once.
    for length in [0, 1, 58_999, 59_000, 59_001, 2_000_000] {
        let server = Server::start(Encoding::Msgpack);
        let (writer, reader) = (server.client(), server.client());
        let content: Vec<u8> = (0..length).map(|at: u32| (at % 251) as u8).collect();
        let mut transaction = begin(&writer);
        let data = Bytes::from_static(BLOB_RECORD);
        transaction.store_blob(Oid(1), Tid::ZERO, data.clone(), &mut &content[..]).unwrap();
        let tid = finish(transaction);
        reader.sync().unwrap();
        assert_eq!(reader.load_current(Oid(1)).unwrap().data, data);
        assert_eq!(fetched(&reader, Oid(1), tid).unwrap(), content, "{length} bytes");
    }
}

#[test]
fn a_blob_that_is_not_there_is_refused_and_the_next_one_comes() {
    let server = Server::start(Encoding::Pickle);
    let client = server.client();
    let mut transaction = begin(&client);
    let data = Bytes::from_static(BLOB_RECORD);
    transaction.store_blob(Oid(1), Tid::ZERO, data, &mut &b"content"[..]).unwrap();
    let tid = finish(transaction);
    let refused = fetched(&client, Oid(2), tid).unwrap_err();
    assert!(refused.is_exception("ZODB.POSException.POSKeyError"), "{refused:?}");
    assert_eq!(fetched(&client, Oid(1), tid).unwrap(), b"content");
}

/// The source of a blob that cannot be read.
struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("the disk is gone"))
    }
}

#[test]
fn a_blob_whose_source_cannot_be_read_fails_in_the_client() {
    let server = Server::start(Encoding::Msgpack);
    let client = server.client();
    let mut transaction = begin(&client);
    let data = Bytes::from_static(BLOB_RECORD);
    let error = transaction.store_blob(Oid(1), Tid::ZERO, data, &mut Broken).unwrap_err();
    assert!(matches!(error, ClientError::File { .. }), "{error:?}");
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    transaction.abort().unwrap();
    commit(&client, &[(1, "x")]);
}

/// A stock server keeps what it has of a blob over the abort, and does not take another blob then.
#[test]
fn a_blob_whose_source_cannot_be_read_is_ended_and_its_transaction_can_only_be_aborted() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            for name in ["tpc_begin", "storea", "storeBlobStart", "storeBlobEnd", "tpc_abort"] {
                peer.expect(name);
            }
        },
        |client, _| {
            let mut transaction = begin(client);
            let data = Bytes::from_static(BLOB_RECORD);
            transaction.store_blob(Oid(1), Tid::ZERO, data, &mut Broken).unwrap_err();
            let refused = transaction.vote().unwrap_err();
            assert!(matches!(refused, ClientError::NotVoted(_)), "{refused:?}");
            let refused = transaction.finish(|_| ()).unwrap_err();
            assert!(matches!(refused, ClientError::NotVoted(_)), "{refused:?}");
        },
    );
}

#[test]
fn only_what_the_last_vote_has_covered_can_be_finished() {
    let server = Server::start(Encoding::Msgpack);
    let client = server.client();
    let base = commit(&client, &[(1, "first")]);
    let not_voted = |transaction: Transaction| {
        let refused = transaction.finish(|_| ()).unwrap_err();
        assert!(matches!(refused, ClientError::NotVoted(_)), "{refused:?}");
        let current = client.load_current(Oid(1)).unwrap();
        assert_eq!((current.data, current.serial), (record("first"), base));
    };
    let stored = |serial| {
        let mut transaction = begin(&client);
        transaction.store(Oid(1), serial, record("second")).unwrap();
        transaction
    };
    not_voted(stored(base));
    let mut late = stored(base);
    late.vote().unwrap();
    late.store(Oid(1), base, record("third")).unwrap();
    not_voted(late);
    let mut conflicting = stored(Tid(1));
    assert_eq!(conflicting.vote().unwrap().conflicts.len(), 1);
    not_voted(conflicting);
    assert!(finish(stored(base)) > base);
}

#[test]
fn a_transaction_whose_finish_is_refused_is_aborted_before_the_next_one() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            for name in ["tpc_begin", "storea"] {
                peer.expect(name);
            }
            let vote = peer.expect("vote");
            peer.reply(&vote, Value::list([]));
            let end = peer.expect("tpc_finish");
            peer.fail(&end, "builtins.OSError");
            for name in ["tpc_abort", "tpc_begin"] {
                peer.expect(name);
            }
            let vote = peer.expect("vote");
            peer.reply(&vote, Value::list([]));
        },
        |client, _| {
            let mut transaction = begin(client);
            transaction.store(Oid(1), Tid::ZERO, record("one")).unwrap();
            transaction.vote().unwrap();
            let waiting = Arc::clone(client);
            // It begins as soon as it may.
            let next = thread::spawn(move || begin(&waiting).vote());
            let refused = transaction.finish(|_| ()).unwrap_err();
            assert!(refused.is_exception("builtins.OSError"), "{refused:?}");
            next.join().unwrap().unwrap();
        },
    );
}

/// The answer names the objects that the server has changed, and comes once.
#[test]
fn a_transaction_whose_vote_was_interrupted_can_only_be_aborted() {
    let stop = Arc::new(Switch::default());
    let interrupt = Some(Arc::clone(&stop) as Arc<dyn Interrupt>);
    play_with(
        |options| Options { interrupt, ..options },
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            for name in ["tpc_begin", "storea"] {
                peer.expect(name);
            }
            let vote = peer.expect("vote");
            let abort = peer.expect("tpc_abort");
            peer.reply(&vote, Value::list([Oid(1).into()]));
            peer.reply(&abort, Value::None);
            let ping = peer.expect("ping");
            peer.reply(&ping, Value::None);
        },
        |client, _| {
            let mut transaction = begin(client);
            transaction.store(Oid(1), Tid::ZERO, record("one")).unwrap();
            stop.set(true);
            let error = transaction.vote().unwrap_err();
            assert!(matches!(error, ClientError::Interrupted), "{error:?}");
            stop.set(false);
            let again = transaction.vote().unwrap_err();
            assert!(matches!(again, ClientError::NotVoted(_)), "{again:?}");
            let refused = transaction.finish(|_| ()).unwrap_err();
            assert!(matches!(refused, ClientError::NotVoted(_)), "{refused:?}");
            client.sync().unwrap();
        },
    );
}

#[test]
fn a_deleted_object_is_gone_from_the_server_and_from_the_cache() {
    let server = Server::start(Encoding::Pickle);
    let (writer, reader) = (server.client(), server.client());
    let first = commit(&writer, &[(1, "one")]);
    assert_eq!(writer.load_current(Oid(1)).unwrap().serial, first);
    let mut transaction = begin(&writer);
    transaction.delete(Oid(1), first).unwrap();
    let second = finish(transaction);
    reader.sync().unwrap();
    for client in [&writer, &reader] {
        let missing = client.load_current(Oid(1));
        assert!(matches!(missing, Err(ClientError::NoObject(Oid(1)))), "{missing:?}");
        assert_eq!(client.load_before(Oid(1), second).unwrap().unwrap().data, record("one"));
    }
}

#[test]
fn an_undone_transaction_leaves_the_data_before_it() {
    let server = Server::start(Encoding::Msgpack);
    let client = server.client();
    commit(&client, &[(1, "one")]);
    commit(&client, &[(1, "two")]);
    let listed = client.call("undoLog", &Value::tuple([0.into(), 1.into()])).unwrap();
    let listed = listed.as_sequence().unwrap();
    let id = listed[0].entry("id").and_then(Value::as_bytes).unwrap();
    let mut transaction = begin(&client);
    transaction.undo(id).unwrap();
    // The server tells which objects have other data now.
    assert_eq!(transaction.vote().unwrap().changed, [Oid(1)]);
    let third = transaction.finish(|_| ()).unwrap();
    let current = client.load_current(Oid(1)).unwrap();
    assert_eq!((current.data, current.serial), (record("one"), third));
}

#[test]
fn restored_records_keep_their_serial_and_a_record_without_data_deletes() {
    let server = Server::start(Encoding::Pickle);
    let client = server.client();
    let copied = |tid, data: Option<&[u8]>, previous| {
        let options = TransactionOptions { tid: Some(tid), ..TransactionOptions::default() };
        let mut transaction = client.begin(&options).unwrap();
        transaction.restore(Oid(1), tid, data, previous).unwrap();
        assert_eq!(finish(transaction), tid);
    };
    let (first, second) = (Tid(1 << 56), Tid(2 << 56));
    copied(first, Some(&record("one")), None);
    let current = client.load_current(Oid(1)).unwrap();
    assert_eq!((current.data, current.serial), (record("one"), first));
    copied(second, None, None);
    assert!(matches!(client.load_current(Oid(1)), Err(ClientError::NoObject(_))));
    assert_eq!(client.load_before(Oid(1), second).unwrap().unwrap().end, Some(second));
}

#[test]
fn an_abort_succeeds_when_its_connection_ends_and_not_when_the_server_refuses_it() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let abort = peer.expect("tpc_abort");
            peer.fail(&abort, "ZODB.POSException.StorageTransactionError");
            peer.expect("tpc_abort");
            drop(peer);
            Peer::accept(listener).admit(Tid(10), |_| ());
        },
        |client, _| {
            let refused = begin(client).abort().unwrap_err();
            let name = "ZODB.POSException.StorageTransactionError";
            assert!(refused.is_exception(name), "{refused:?}");
            begin(client).abort().unwrap();
        },
    );
}

#[test]
fn a_transaction_that_read_what_has_changed_since_is_refused() {
    let server = Server::start(Encoding::Msgpack);
    let client = server.client();
    let first = commit(&client, &[(1, "one"), (2, "two")]);
    for (read, is_current) in [(first, true), (first, false)] {
        let mut transaction = begin(&client);
        transaction.check_current(Oid(1), read).unwrap();
        transaction.store(Oid(3 + u64::from(is_current)), Tid::ZERO, record("new")).unwrap();
        let voted = transaction.vote();
        match is_current {
            true => assert!(voted.is_ok(), "{voted:?}"),
            false => {
                let error = voted.unwrap_err();
                assert!(error.is_exception("ZODB.POSException.ReadConflictError"), "{error}");
            }
        }
        transaction.abort().unwrap();
        commit(&client, &[(1, "one again")]);
    }
}

/// What a transaction has written would leave no room for anything else.
#[test]
fn what_a_transaction_writes_fills_half_of_the_cache_at_most() {
    const BYTES: usize = 128 << 10;
    let server = Server::start(Encoding::Msgpack);
    let options = Options { cache_bytes: 2 << 20, ..server.options() };
    let client = Client::connect(options).unwrap();
    let mut transaction = begin(&client);
    for oid in (0..12).map(Oid) {
        transaction.store(oid, Tid::ZERO, vec![7; BYTES].into()).unwrap();
    }
    let tid = finish(transaction);
    let is_cached = |oid: &u64| client.load_cached(Oid(*oid), tid.next()).is_some();
    let cached: Vec<_> = (0..12).filter(is_cached).collect();
    assert_eq!(cached, (0..8).collect::<Vec<_>>());
}

#[test]
fn stores_are_sent_together_and_not_later_than_the_vote() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            peer.expect("first");
            for name in ["tpc_begin", "storea", "storea", "second", "storea"] {
                peer.expect(name);
            }
            let vote = peer.expect("vote");
            peer.reply(&vote, Value::list([]));
        },
        |client, _| {
            let mark = |name| client.cast(name, &Value::tuple([])).unwrap();
            let mut transaction = begin(client);
            transaction.store(Oid(1), Tid::ZERO, record("small")).unwrap();
            mark("first");
            transaction.store(Oid(2), Tid::ZERO, vec![7; 256 << 10].into()).unwrap();
            mark("second");
            transaction.store(Oid(3), Tid::ZERO, record("small")).unwrap();
            transaction.vote().unwrap();
        },
    );
}

/// A server could take late messages of an aborted transaction for those of the next one.
#[test]
fn each_transaction_has_an_id_of_its_own() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let mut ids = Vec::new();
            for _ in 0..3 {
                let (_, arguments) = peer.asked("tpc_begin");
                ids.push(arguments[0].as_u64().unwrap());
                peer.expect("storea");
                let (abort, arguments) = peer.asked("tpc_abort");
                assert_eq!(arguments[0].as_u64(), ids.last().copied());
                peer.reply(&abort, Value::None);
            }
            assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
        },
        |client, _| {
            for _ in 0..3 {
                let mut transaction = begin(client);
                // So that it is told to the server before it ends.
                transaction.store(Oid(1), Tid::ZERO, vec![7; 256 << 10].into()).unwrap();
                transaction.abort().unwrap();
            }
        },
    );
}

#[test]
fn a_blob_in_the_shared_directory_is_named_to_the_server() {
    let script = |listener: &UnixListener| {
        let mut peer = Peer::admitted(listener, Tid(10));
        for name in ["tpc_begin", "storea", "storeBlobShared"] {
            peer.expect(name);
        }
        let vote = peer.expect("vote");
        peer.reply(&vote, Value::list([]));
        let abort = peer.expect("tpc_abort");
        peer.reply(&abort, Value::None);
    };
    play(script, |client, _| {
        let mut transaction = begin(client);
        let data = Bytes::from_static(BLOB_RECORD);
        transaction.store_shared_blob(Oid(1), Tid::ZERO, data, "name").unwrap();
        transaction.vote().unwrap();
        transaction.abort().unwrap();
    });
}

#[test]
fn a_commit_waits_for_the_one_before_as_long_as_it_takes() {
    let server = Server::start(Encoding::Msgpack);
    let client = server.client();
    let first = begin(&client);
    thread::scope(|scope| {
        let next = scope.spawn(|| client.begin(&TransactionOptions::default()).map(drop));
        // Longer than a waiting thread goes without a look around.
        thread::sleep(Duration::from_millis(150));
        first.abort().unwrap();
        next.join().unwrap().unwrap();
    });
}
