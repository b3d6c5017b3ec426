//! Blobs on their way to the server and back, in pieces.

use std::time::{Duration, Instant};

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::{InProcess, Setup};
use zodium_disk::Operation;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// What ZODB stores for any blob.
const RECORD: &[u8] = b"\x80\x03cZODB.blob\nBlob\nq\x00.\x80\x03N.";
/// Most bytes of a blob in one message of the server.
const CHUNK_BYTES: usize = 128 << 10;

fn start(encoding: Encoding) -> (InProcess, Client) {
    let server =
        must(InProcess::start_with(encoding, Setup { has_blobs: true, ..Setup::default() }));
    let client = must(Client::register(server.socket()));
    (server, client)
}

/// Sends a blob in pieces of this size, as a part of the transaction.
fn send_blob(client: &mut Client, number: u64, oid: Oid, content: &[u8], piece: usize) {
    must(client.tell("storeBlobStart", []));
    for chunk in content.chunks(piece) {
        must(client.tell("storeBlobChunk", [chunk.into()]));
        must(client.send());
    }
    let record = [oid.into(), Tid::ZERO.into(), RECORD.into(), number.into()];
    must(client.tell("storeBlobEnd", record));
}

/// Distinguishes each place of a blob from its neighbours.
fn content(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 7 + at / 251 + seed) % 256) as u8).collect()
}

/// The blob from the messages that came, which must be those of a blob as a whole.
fn taken(client: &mut Client, oid: Oid, serial: Tid) -> Vec<u8> {
    let of_it = |arguments: &[Value<'_>]| {
        arguments[0].as_oid() == Some(oid) && arguments[1].as_tid() == Some(serial)
    };
    let (mine, others) = std::mem::take(&mut client.notices)
        .into_iter()
        .partition::<Vec<_>, _>(|(_, arguments)| of_it(arguments));
    client.notices = others;
    let names: Vec<&str> = mine.iter().map(|(name, _)| &name[..]).collect();
    let [first, between @ .., last] = &names[..] else { panic!("{names:?}") };
    assert_eq!((*first, *last), ("receiveBlobStart", "receiveBlobStop"));
    assert!(between.iter().all(|name| *name == "receiveBlobChunk"), "{names:?}");
    let chunks = mine[1..mine.len() - 1].iter().map(|(_, arguments)| {
        let chunk = arguments[2].as_bytes().unwrap();
        assert!(!chunk.is_empty() && chunk.len() <= CHUNK_BYTES, "{} bytes", chunk.len());
        chunk.to_vec()
    });
    chunks.collect::<Vec<_>>().concat()
}

/// Waits until the files of blobs have so many bytes.
fn wait_for_bytes(server: &InProcess, bytes: std::ops::RangeInclusive<usize>) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !bytes.contains(&server.blob_bytes()) {
        assert!(Instant::now() < deadline, "{} bytes, not {bytes:?}", server.blob_bytes());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_blob_of_any_length_comes_back_whole_and_in_order() {
    const KIB: usize = 1 << 10;
    let lengths = [0, 1, 128 * KIB, 128 * KIB + 1, 256 * KIB, 512 * KIB, 512 * KIB + 1, 1500 * KIB];
    for (encoding, piece) in [(Encoding::Pickle, 59_000), (Encoding::Msgpack, 500 * KIB)] {
        let (server, mut client) = start(encoding);
        for (number, length) in (1..).zip(lengths) {
            must(client.begin(number));
            send_blob(&mut client, number, Oid(number), &content(length, 0), piece);
            let tid = must(client.commit(number));
            client.notices.clear();
            let answer = must(client.ask("sendBlob", [Oid(number).into(), tid.into()]));
            assert_eq!(answer, Answer::Value(Value::None));
            assert!(taken(&mut client, Oid(number), tid) == content(length, 0), "{length} bytes");
        }
        let blobs = server.metrics().blobs;
        let bytes = lengths.iter().sum::<usize>() as u64;
        assert_eq!((blobs.received, blobs.received_bytes), (lengths.len() as u64, bytes));
        assert_eq!((blobs.sent, blobs.sent_bytes), (lengths.len() as u64, bytes));
        must(server.close());
    }
}

#[test]
fn several_blobs_of_one_transaction_are_sent_side_by_side() {
    let (server, mut client) = start(Encoding::Msgpack);
    must(client.begin(1));
    for oid in 1..=4 {
        send_blob(&mut client, 1, Oid(oid), &content(1_200_000, oid as usize), 300_000);
    }
    let tid = must(client.commit(1));
    client.notices.clear();
    let ask = |oid| client.call("sendBlob", [Oid(oid).into(), tid.into()]);
    let asked: Vec<_> = (1..=4).map(ask).map(must).collect();
    must(client.send());
    for id in asked {
        assert_eq!(must(client.answer(&id)), Answer::Value(Value::None));
    }
    for oid in 1..=4 {
        assert!(taken(&mut client, Oid(oid), tid) == content(1_200_000, oid as usize));
    }
    must(server.close());
}

/// More than may wait for the disk: the server stops reading from the client for a while.
#[test]
fn a_client_that_sends_faster_than_the_disk_writes_loses_nothing() {
    let (server, mut client) = start(Encoding::Msgpack);
    let content = content(24_000_000, 0);
    must(client.begin(1));
    send_blob(&mut client, 1, Oid(1), &content, 900_000);
    let tid = must(client.commit(1));
    client.notices.clear();
    must(client.ask("sendBlob", [Oid(1).into(), tid.into()]));
    assert!(taken(&mut client, Oid(1), tid) == content);
    must(server.close());
}

#[test]
fn most_of_a_blob_is_written_before_its_end_is_sent() {
    let (server, mut client) = start(Encoding::Pickle);
    must(client.begin(1));
    must(client.tell("storeBlobStart", []));
    for chunk in content(1_000_000, 0).chunks(100_000) {
        must(client.tell("storeBlobChunk", [chunk.into()]));
    }
    must(client.send());
    // Up to 256 KiB wait for more.
    wait_for_bytes(&server, 1_000_000 - (256 << 10)..=usize::MAX);
    must(server.close());
}

/// Aborts a transaction with blobs, whose removal takes a while.
fn abort(server: &InProcess, client: &mut Client, number: u64) {
    let held_up = server.hold_up(Operation::Folder);
    let abort = must(client.call("tpc_abort", [number.into()]));
    must(client.send());
    held_up.wait();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            held_up.go_on();
        });
        assert_eq!(must(client.answer(&abort)), Answer::Value(Value::None));
    });
}

#[test]
fn the_files_of_an_aborted_transaction_are_gone_when_that_is_answered() {
    let (server, mut client) = start(Encoding::Msgpack);
    let before = server.blob_bytes();
    for (number, has_vote) in [(1, false), (2, true)] {
        must(client.begin(number));
        for oid in 1..=20 {
            send_blob(&mut client, number, Oid(oid), &content(1_000, 0), 1_000);
        }
        must(client.ask("ping", []));
        if has_vote {
            assert!(matches!(must(client.ask("vote", [number.into()])), Answer::Value(_)));
        }
        assert!(server.blob_bytes() > before + 19_000);
        abort(&server, &mut client, number);
        assert_eq!(server.blob_bytes(), before);
    }
    must(server.close());
}

#[test]
fn the_file_of_a_blob_that_was_being_sent_is_gone_when_the_abort_is_answered() {
    let (server, mut client) = start(Encoding::Pickle);
    let before = server.blob_bytes();
    must(client.begin(1));
    must(client.tell("storeBlobStart", []));
    must(client.tell("storeBlobChunk", [content(400_000, 0).into()]));
    must(client.send());
    wait_for_bytes(&server, before + 400_000..=usize::MAX);
    abort(&server, &mut client, 1);
    assert_eq!(server.blob_bytes(), before);
    must(server.close());
}

#[test]
fn a_write_for_a_blob_that_was_given_up_does_nothing_to_the_next_one() {
    let (server, mut client) = start(Encoding::Msgpack);
    let before = server.blob_bytes();
    let held_up = server.hold_up(Operation::Write);
    must(client.begin(1));
    must(client.tell("storeBlobStart", []));
    must(client.tell("storeBlobChunk", [content(400_000, 1).into()]));
    must(client.send());
    held_up.wait();
    // Another blob in the middle of it is a mistake, which costs the transaction.
    must(client.tell("storeBlobStart", []));
    must(client.ask("vote", [1.into()]));
    must(client.begin(2));
    must(client.tell("storeBlobStart", []));
    must(client.tell("storeBlobChunk", [content(1_000, 2).into()]));
    must(client.ask("ping", []));
    held_up.go_on();
    let jobs = || {
        let inspection = server.inspect(1);
        let sessions = inspection.workers.iter().flat_map(|worker| &worker.sessions);
        sessions.map(|session| session.jobs).sum::<usize>()
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while jobs() > 0 {
        assert!(Instant::now() < deadline, "it is still being written");
    }
    // The file of the first one is removed.
    wait_for_bytes(&server, before..=before);
    let record = [Oid(1).into(), Tid::ZERO.into(), RECORD.into(), 2.into()];
    must(client.tell("storeBlobEnd", record));
    let tid = must(client.commit(2));
    client.notices.clear();
    must(client.ask("sendBlob", [Oid(1).into(), tid.into()]));
    assert!(taken(&mut client, Oid(1), tid) == content(1_000, 2));
    must(server.close());
}

#[test]
fn the_chunks_of_a_blob_count_as_memory_until_they_are_written() {
    let (server, mut client) = start(Encoding::Pickle);
    let before = server.held_bytes();
    let held = || server.held_bytes() - before;
    let held_up = server.hold_up(Operation::Write);
    must(client.begin(1));
    must(client.tell("storeBlobStart", []));
    for length in [300_000, 100_000] {
        must(client.tell("storeBlobChunk", [content(length, 0).into()]));
    }
    must(client.ask("ping", []));
    held_up.wait();
    assert!((380_000..500_000).contains(&held()), "{} bytes", held());
    held_up.go_on();
    let deadline = Instant::now() + Duration::from_secs(20);
    while held() >= 200_000 {
        assert!(Instant::now() < deadline, "{} bytes", held());
        std::thread::sleep(Duration::from_millis(1));
    }
    must(server.close());
}

#[test]
fn two_blobs_at_once_cost_the_transaction_and_the_next_one_is_whole() {
    let (server, mut client) = start(Encoding::Pickle);
    must(client.begin(1));
    must(client.tell("storeBlobStart", []));
    must(client.tell("storeBlobChunk", [content(400_000, 1).into()]));
    send_blob(&mut client, 1, Oid(1), &content(10, 2), 10);
    let refused = must(client.ask("vote", [1.into()]));
    assert_eq!(refused, Answer::Error("ZODB.POSException.StorageTransactionError".to_owned()));
    must(client.ask("tpc_abort", [1.into()]));
    must(client.begin(2));
    send_blob(&mut client, 2, Oid(1), &content(400_000, 3), 100_000);
    let tid = must(client.commit(2));
    client.notices.clear();
    must(client.ask("sendBlob", [Oid(1).into(), tid.into()]));
    assert!(taken(&mut client, Oid(1), tid) == content(400_000, 3));
    must(server.close());
}

#[test]
fn a_part_of_a_blob_that_was_not_begun_is_refused() {
    let (server, mut client) = start(Encoding::Msgpack);
    let refusal = Answer::Error("ZODB.POSException.StorageTransactionError".to_owned());
    let chunk = |client: &mut Client| must(client.ask("storeBlobChunk", [b"chunk".into()]));
    assert_eq!(chunk(&mut client), refusal, "outside of a transaction");
    assert_eq!(must(client.ask("storeBlobStart", [])), refusal, "outside of a transaction");
    must(client.begin(1));
    assert_eq!(chunk(&mut client), refusal, "without a beginning");
    must(server.close());
}

#[test]
fn a_server_without_blobs_refuses_them_at_the_vote_and_ignores_their_parts() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    let mut client = must(Client::register(server.socket()));
    let unsupported = Answer::Error("ZODB.POSException.Unsupported".to_owned());
    let asked = must(client.ask("sendBlob", [Oid(1).into(), Tid(1).into()]));
    assert_eq!(asked, unsupported);
    must(client.begin(1));
    for name in ["storeBlobStart", "storeBlobChunk"] {
        let answer = match name {
            "storeBlobStart" => must(client.ask(name, [])),
            _ => must(client.ask(name, [b"chunk".into()])),
        };
        assert_eq!(answer, Answer::Value(Value::None), "{name}");
    }
    assert_eq!(must(client.ask("vote", [1.into()])), unsupported);
    must(client.begin(2));
    must(client.store(2, Oid(1), Tid::ZERO, b"data"));
    assert!(matches!(must(client.ask("vote", [2.into()])), Answer::Value(_)));
    assert_eq!(must(client.ask("tpc_abort", [2.into()])), Answer::Value(Value::None));
    must(server.close());
}

#[test]
fn a_blob_that_is_not_there_is_a_missing_key() {
    let (server, mut client) = start(Encoding::Msgpack);
    let asked = must(client.ask("sendBlob", [Oid(1).into(), Tid(1).into()]));
    assert_eq!(asked, Answer::Error("ZODB.POSException.POSKeyError".to_owned()));
    assert!(client.notices.is_empty(), "{:?}", client.notices);
    must(server.close());
}
