//! Reads the log ahead of the caller.

use crate::common::peer::wait_until;
use crate::common::{Server, commit};
use bytes::Bytes;
use zodium_client::{Client, ClientError, CommittedRecord, LogReader, TransactionOptions};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

const ENCODINGS: [Encoding; 2] = [Encoding::Pickle, Encoding::Msgpack];

/// Commits objects of this size, from this oid on.
fn commit_bytes(client: &Client, first: u64, count: u64, bytes: usize) -> Tid {
    let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
    for oid in (first..first + count).map(Oid) {
        let data = Bytes::from(vec![u8::try_from(oid.0 % 251).unwrap(); bytes]);
        transaction.store(oid, Tid::ZERO, data).unwrap();
    }
    transaction.vote().unwrap();
    transaction.finish(|_| ()).unwrap()
}

fn records(reader: &mut LogReader) -> Vec<CommittedRecord> {
    std::iter::from_fn(|| reader.next_record().unwrap()).collect()
}

#[test]
fn a_transaction_larger_than_what_is_ahead_comes_record_by_record() {
    for encoding in ENCODINGS {
        let server = Server::start(encoding);
        let client = server.client();
        let tids = [
            commit_bytes(&client, 0, 3, 10),
            commit_bytes(&client, 100, 2000, 4000),
            commit_bytes(&client, 5000, 1, 3_000_000),
            commit_bytes(&client, 6000, 3, 10),
        ];
        let mut reader = client.read_log(None, None).unwrap();
        for (tid, (first, count, bytes)) in
            tids.iter().zip([(0, 3, 10), (100, 2000, 4000), (5000, 1, 3_000_000), (6000, 3, 10)])
        {
            assert_eq!(reader.next_transaction().unwrap().unwrap().tid, *tid);
            let records = records(&mut reader);
            assert!(records.iter().map(|record| record.oid.0).eq(first..first + count));
            for record in records {
                let expected = vec![u8::try_from(record.oid.0 % 251).unwrap(); bytes];
                assert_eq!((record.tid, record.data), (*tid, Some(Bytes::from(expected))));
            }
        }
        assert_eq!(reader.next_transaction().unwrap(), None);
        assert_eq!(reader.next_transaction().unwrap(), None);
    }
}

#[test]
fn records_come_in_batches_of_what_is_there() {
    for encoding in ENCODINGS {
        let server = Server::start(encoding);
        let client = server.client();
        let tid = commit_bytes(&client, 0, 1000, 4000);
        let mut reader = client.read_log(None, None).unwrap();
        reader.next_transaction().unwrap().unwrap();
        let mut oids = Vec::new();
        for count in [0, 1, 3] {
            let batch = reader.next_records(count).unwrap();
            assert_eq!(batch.len(), count);
            oids.extend(batch.into_iter().map(|record| record.oid.0));
            assert_eq!(reader.position(), Some((tid, oids.len())));
        }
        let mut batches = 0;
        loop {
            let batch = reader.next_records(usize::MAX).unwrap();
            if batch.is_empty() {
                break;
            }
            // An answer of the server has up to 256 KiB.
            assert!((1..100).contains(&batch.len()), "{} at once", batch.len());
            batches += 1;
            oids.extend(batch.into_iter().map(|record| record.oid.0));
        }
        assert!(oids.iter().copied().eq(0..1000));
        assert!(batches < 100, "{batches} batches");
    }
}

#[test]
fn records_that_were_passed_over_can_be_had_whatever_was_wanted_before() {
    let server = Server::start(Encoding::Msgpack);
    let client = server.client();
    let tids: Vec<_> = (0..40).map(|n| commit_bytes(&client, n * 100, 30, 3000)).collect();
    // The transactions whose records are read, and how many of them.
    for (wanted, count) in [(5, 30), (6, 1), (17, 30), (2, 7), (39, 30)] {
        let mut reader = client.read_log(None, None).unwrap();
        for (number, tid) in (0..).zip(&tids) {
            assert_eq!(reader.next_transaction().unwrap().unwrap().tid, *tid);
            if number % wanted == wanted - 1 {
                for oid in (number * 100..).take(count) {
                    let record = reader.next_record().unwrap().unwrap();
                    assert_eq!((record.oid, record.tid), (Oid(oid), *tid));
                }
                assert_eq!(reader.next_record().unwrap().is_none(), count == 30);
            }
        }
        assert_eq!(reader.next_transaction().unwrap(), None);
    }
}

#[test]
fn a_restarted_server_ends_a_reader_and_another_one_goes_on() {
    let mut server = Server::start(Encoding::Pickle);
    let client = server.client();
    let tids: Vec<_> = (0..500).map(|n| commit_bytes(&client, n * 10, 10, 2000)).collect();
    let mut reader = client.read_log(None, None).unwrap();
    let mut seen = vec![reader.next_transaction().unwrap().unwrap().tid];
    server.restart();
    let lost = loop {
        match reader.next_transaction() {
            Ok(head) => seen.push(head.unwrap().tid),
            Err(error) => break error,
        }
    };
    assert!(matches!(lost, ClientError::Disconnected(_)), "{lost}");
    // And it stays so.
    assert!(reader.next_transaction().unwrap_err().is_disconnection());
    assert!(reader.next_record().unwrap_err().is_disconnection());
    assert!(seen.len() < tids.len());
    let mut reader = client.read_log(seen.last().map(|tid| tid.next()), None).unwrap();
    while let Some(head) = reader.next_transaction().unwrap() {
        assert_eq!(records(&mut reader).len(), 10);
        seen.push(head.tid);
    }
    assert_eq!(seen, tids);
}

#[test]
fn what_was_read_ahead_is_not_given_after_the_connection_has_ended() {
    let mut server = Server::start(Encoding::Msgpack);
    let client = server.client();
    commit_bytes(&client, 0, 10, 10);
    let mut reader = client.read_log(None, None).unwrap();
    reader.next_transaction().unwrap().unwrap();
    reader.next_record().unwrap().unwrap();
    server.stop();
    wait_until(|| !client.is_connected());
    assert!(reader.next_record().unwrap_err().is_disconnection());
}

#[test]
fn records_of_a_transaction_that_a_pack_has_removed_are_an_error() {
    let server = Server::start(Encoding::Msgpack);
    let client = server.client();
    let mut serial = Tid::ZERO;
    for _ in 0..40 {
        let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
        transaction.store(Oid(0), serial, vec![0; 100_000].into()).unwrap();
        transaction.vote().unwrap();
        serial = transaction.finish(|_| ()).unwrap();
    }
    let mut reader = client.read_log(None, None).unwrap();
    // So many that their records are not requested any more.
    for _ in 0..38 {
        reader.next_transaction().unwrap().unwrap();
    }
    client.call("pack", &Value::tuple([Value::Float(1e11), true.into()])).unwrap();
    let gone = reader.next_record().map(|record| record.is_some()).unwrap_err();
    assert!(matches!(gone, ClientError::Unexpected { .. }), "{gone}");
}

#[test]
fn each_reader_has_a_number_of_its_own() {
    let server = Server::start(Encoding::Msgpack);
    let client = server.client();
    commit(&client, &[(0, "x")]);
    let readers = [(); 3].map(|()| client.read_log(None, None).unwrap());
    let mut numbers = readers.each_ref().map(LogReader::number).to_vec();
    numbers.dedup();
    assert_eq!(numbers.len(), 3, "{numbers:?}");
}

#[test]
fn a_closed_client_ends_its_readers() {
    let server = Server::start(Encoding::Msgpack);
    let client = server.client();
    for first in 0..200 {
        commit_bytes(&client, first * 10, 10, 2000);
    }
    let mut reader = client.read_log(None, None).unwrap();
    reader.next_transaction().unwrap();
    client.close();
    let ended = loop {
        if let Err(error) = reader.next_record().and_then(|_| reader.next_transaction()) {
            break error;
        }
    };
    assert!(matches!(ended, ClientError::Closed), "{ended}");
    assert!(matches!(client.read_log(None, None), Err(ClientError::Closed)));
}

#[test]
fn a_pack_does_not_disturb_a_reader_and_takes_nothing_that_it_was_promised() {
    let server = Server::start(Encoding::Pickle);
    let client = server.client();
    for revision in 0..200 {
        commit(&client, &[(0, &format!("revision {revision}")), (1, "x")]);
    }
    let mut reader = client.read_log(None, None).unwrap();
    reader.next_transaction().unwrap();
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let until = Value::Float(time.as_secs_f64() + 1.0);
    client.call("pack", &Value::tuple([until, true.into()])).unwrap();
    let mut count = 1;
    while reader.next_transaction().unwrap().is_some() {
        assert_eq!(records(&mut reader).len(), 2);
        count += 1;
    }
    assert_eq!(count, 200);
}

#[test]
fn what_was_read_ahead_of_all_objects_is_not_given_once_it_may_be_old() {
    let server = Server::start(Encoding::Msgpack);
    let (client, other) = (server.client(), server.client());
    let first = commit_bytes(&client, 0, 5000, 100);
    let mut from = None;
    for oid in (0..5000).map(Oid) {
        if oid == Oid(2500) {
            let serial = commit(&other, &[(2500, "changed")]);
            // Told to the client, so that the objects read ahead are known to be stale.
            client.sync().unwrap();
            assert_eq!(client.next_object(from).unwrap().serial, serial);
        }
        let found = client.next_object(from).unwrap();
        assert_eq!(found.oid, oid);
        assert_eq!(found.serial == first, oid != Oid(2500));
        from = found.following;
    }
    assert_eq!(from, None);
    assert_eq!(client.next_object(Some(Oid(4999))).unwrap().oid, Oid(4999));
    let error = client.next_object(Some(Oid(5000))).unwrap_err();
    assert!(error.is_exception("builtins.ValueError"), "{error}");
}
