//! The client over a storage in memory.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod losing;

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use zodium_client::{ClientError, Outcome, TransactionOptions, Watcher};
use zodium_embedded::{EmbeddedClient, EmbeddedOptions, EmbeddedTransaction};
use zodium_memorystorage::MemoryStorage;
use zodium_pickle::Value;
use zodium_storage::{Access, Load, Read, Storage};
use zodium_types::{Oid, Tid};

use crate::losing::LosingStorage;

/// The commits that a client is told of.
#[derive(Default)]
struct Told(Mutex<Vec<(Tid, Vec<Oid>)>>);

impl Watcher for Told {
    fn invalidated(&self, tid: Tid, oids: &[Oid]) -> Result<(), ClientError> {
        self.0.lock().unwrap().push((tid, oids.to_vec()));
        Ok(())
    }

    fn all_invalidated(&self) -> Result<(), ClientError> {
        self.0.lock().unwrap().push((Tid::MAX, Vec::new()));
        Ok(())
    }
}

fn start() -> (EmbeddedClient, Arc<Told>) {
    start_on(Arc::new(MemoryStorage::default()))
}

fn start_on(storage: Arc<dyn Storage>) -> (EmbeddedClient, Arc<Told>) {
    let told = Arc::new(Told::default());
    let watcher: Arc<dyn Watcher> = Arc::<Told>::clone(&told);
    let options = EmbeddedOptions { watcher: Some(watcher), ..EmbeddedOptions::default() };
    (EmbeddedClient::start(storage, options).unwrap(), told)
}

fn storing(client: &EmbeddedClient, serial: Tid, data: &'static str) -> EmbeddedTransaction {
    let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
    transaction.store(Oid(1), serial, Bytes::from_static(data.as_bytes())).unwrap();
    transaction
}

fn commit(client: &EmbeddedClient, serial: Tid, data: &'static str) -> Tid {
    let mut transaction = storing(client, serial, data);
    assert_eq!(transaction.vote().unwrap().conflicts, []);
    let (seen, told) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
    let (noted, last) = (Arc::clone(&seen), Arc::clone(&told));
    *last.lock().unwrap() = Some(client.last_tid());
    let note = move |tid| {
        *noted.lock().unwrap() = Some(tid);
        Ok(())
    };
    let tid = transaction.finish(note).unwrap();
    assert_eq!((*seen.lock().unwrap(), client.last_tid()), (Some(tid), tid));
    tid
}

fn current(client: &EmbeddedClient) -> (Bytes, Tid) {
    let found = client.load_before(Oid(1), Tid::MAX).unwrap().unwrap();
    (found.data, found.serial)
}

#[test]
fn own_commits_are_told_to_their_caller_only() {
    let (client, told) = start();
    let first = commit(&client, Tid::ZERO, "one");
    let second = commit(&client, first, "two");
    assert_eq!(current(&client), (Bytes::from_static(b"two"), second));
    let before = client.load_before(Oid(1), second).unwrap().unwrap();
    assert_eq!((before.serial, before.end), (first, Some(second)));
    assert!(client.load_before(Oid(1), first).unwrap().is_none());
    assert!(matches!(client.load_before(Oid(7), Tid::MAX), Err(ClientError::NoObject(Oid(7)))));
    assert!(told.0.lock().unwrap().is_empty());
}

#[test]
fn a_commit_that_its_caller_could_not_be_told_of_is_made_up_for_at_the_next() {
    let (client, told) = start();
    let first = commit(&client, Tid::ZERO, "one");
    let mut untold = storing(&client, first, "two");
    untold.vote().unwrap();
    let second = untold.finish(|_| Err(ClientError::NotTold)).unwrap();
    assert_eq!((client.last_tid(), current(&client).1), (first, second));
    let third = commit(&client, second, "three");
    commit(&client, third, "four");
    assert_eq!(*told.0.lock().unwrap(), [(Tid::MAX, vec![])]);
}

#[test]
fn conflicts_are_handed_out_and_resolved_by_storing_again() {
    let (client, _) = start();
    let first = commit(&client, Tid::ZERO, "one");
    let second = commit(&client, first, "two");
    let mut late = storing(&client, first, "late");
    let conflicts = late.vote().unwrap().conflicts;
    let [conflict] = &conflicts[..] else { panic!("{conflicts:?}") };
    assert_eq!((conflict.committed, conflict.stored_upon), (second, first));
    assert_eq!(conflict.data, Bytes::from_static(b"late"));
    late.store(Oid(1), second, Bytes::from_static(b"merged")).unwrap();
    assert_eq!(late.vote().unwrap().conflicts, []);
    let third = late.finish(|_| Ok(())).unwrap();
    assert_eq!(current(&client), (Bytes::from_static(b"merged"), third));
}

#[test]
fn a_read_that_is_not_current_any_more_is_an_error() {
    let (client, _) = start();
    let first = commit(&client, Tid::ZERO, "one");
    commit(&client, first, "two");
    let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
    transaction.check_current(Oid(1), first);
    let error = transaction.vote().unwrap_err();
    assert!(error.is_exception("ZODB.POSException.ReadConflictError"), "{error}");
}

#[test]
fn locks_are_free_again_when_a_voted_transaction_is_dropped() {
    let (client, _) = start();
    let mut dropped = storing(&client, Tid::ZERO, "dropped");
    dropped.vote().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| commit(&client, Tid::ZERO, "kept"));
        drop(dropped);
        waiting.join().unwrap();
    });
    assert_eq!(current(&client).0, "kept");
}

#[test]
fn undos_log_and_calls_answer_as_a_server_does() {
    let (client, _) = start();
    let first = commit(&client, Tid::ZERO, "one");
    let second = commit(&client, first, "two");
    let log = client.call("undoLog", vec![0.into(), Value::Int(-1)]).unwrap();
    let newest = log.as_sequence().unwrap()[0].entry("id").unwrap().as_bytes().unwrap().to_vec();
    let mut undo = client.begin(&TransactionOptions::default()).unwrap();
    undo.undo(&newest).unwrap();
    assert_eq!(undo.vote().unwrap().changed, [Oid(1)]);
    let third = undo.finish(|_| Ok(())).unwrap();
    assert_eq!(current(&client), (Bytes::from_static(b"one"), third));
    let mut log = client.read_log(None, None).unwrap();
    let mut tids = Vec::new();
    while let Some(head) = log.next_transaction().unwrap() {
        tids.push(head.tid);
        assert_eq!(log.next_records(10).unwrap().len(), 1);
        assert_eq!(log.position(), Some((head.tid, 1)));
        assert!(log.next_records(10).unwrap().is_empty());
    }
    assert_eq!(tids, [first, second, third]);
    let missing = client.call("loadSerial", vec![Oid(9).into(), first.into()]).unwrap_err();
    assert!(missing.is_exception("ZODB.POSException.POSKeyError"), "{missing}");
    assert!(client.call("tpc_begin", vec![]).is_err(), "no call of a transaction");
}

#[test]
fn a_closed_client_says_so() {
    let (client, _) = start();
    commit(&client, Tid::ZERO, "one");
    assert!(client.load_cached(Oid(1), Tid::MAX).is_some());
    client.close();
    assert!(matches!(client.begin(&TransactionOptions::default()), Err(ClientError::Closed)));
    assert!(matches!(client.load_before(Oid(1), Tid::MAX), Err(ClientError::Closed)));
    assert!(client.load_cached(Oid(1), Tid::MAX).is_none());
    assert!(matches!(client.check_open(), Err(ClientError::Closed)));
}

#[test]
fn a_commit_that_is_under_way_when_the_client_is_closed_is_not_called_failed() {
    let storage = Arc::new(MemoryStorage::default());
    let (client, _) = start_on(Arc::<MemoryStorage>::clone(&storage));
    let client = &client;
    let (begun, has_begun) = mpsc::channel();
    let (closing, is_closing) = mpsc::channel();
    let voted = |oid| {
        let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
        transaction.store(Oid(oid), Tid::ZERO, Bytes::from_static(b"data")).unwrap();
        transaction.vote().unwrap();
        transaction
    };
    std::thread::scope(|scope| {
        let first = voted(1);
        scope.spawn(move || {
            first.finish(move |_| {
                begun.send(()).unwrap();
                is_closing.recv().unwrap();
                Ok(())
            })
        });
        has_begun.recv().unwrap();
        // It is committed after the first one was told, when the client is being closed.
        let second = voted(2);
        let second = scope.spawn(move || second.finish(|_| Ok(())));
        std::thread::sleep(Duration::from_millis(50));
        scope.spawn(|| client.close());
        std::thread::sleep(Duration::from_millis(50));
        closing.send(()).unwrap();
        match second.join().unwrap() {
            Ok(_) | Err(ClientError::OutcomeUnknown { .. }) => {}
            Err(error) => {
                let found = storage.load_before(Oid(2), Tid::MAX, Access::Blocking);
                let is_missing = matches!(found, Ok(Load::Missing));
                assert!(is_missing, "it is committed, in spite of: {error}");
            }
        }
    });
}

#[test]
fn a_storage_that_does_not_hear_the_end_of_a_commit_while_it_is_closed_leaves_it_unknown() {
    let memory = Arc::new(MemoryStorage::default());
    let (begun, has_begun) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let goes_on = Mutex::new(goes_on);
    let storage = LosingStorage { memory: Arc::clone(&memory), begun, goes_on };
    let (client, _) = start_on(Arc::new(storage));
    let client = &client;
    let mut transaction = storing(client, Tid::ZERO, "data");
    transaction.vote().unwrap();
    let end = std::thread::scope(|scope| {
        let finish = scope.spawn(move || transaction.finish(|_| Ok(())));
        has_begun.recv().unwrap();
        let close = scope.spawn(|| client.close());
        let patient_until = Instant::now() + Duration::from_secs(5);
        while client.check_open().is_ok() && Instant::now() < patient_until {
            std::thread::yield_now();
        }
        go_on.send(()).unwrap();
        close.join().unwrap();
        finish.join().unwrap()
    });
    let Err(ClientError::OutcomeUnknown { transaction, .. }) = end else {
        panic!("it is committed at {}, and its finish gave {end:?}", memory.last_tid())
    };
    assert!(matches!(client.outcome(&transaction), Ok(Outcome::Unknown)));
}
