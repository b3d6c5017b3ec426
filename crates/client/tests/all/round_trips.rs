//! Counts how often a client waits for the server. A relay between them holds replies back until it
//! has seen a number of requests, so a client that waits in between hangs.

#![forbid(unsafe_code)]
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crate::common::{Server, commit, record};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use zodium_client::{Client, Options, TransactionOptions};
use zodium_types::{Address, Oid, Tid};
use zodium_zeo::codec::Encoding;

const LOAD: &[u8] = b"loadBefore";

/// A relay between a client and its server.
#[derive(Default)]
pub(crate) struct Relay {
    state: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    /// Number of loads requested.
    loads: usize,
    /// Replies are held back until this many were requested.
    until_loads: usize,
    /// The same, from the first load on.
    at_once: usize,
}

impl Relay {
    /// Serves one client.
    pub(crate) fn start(path: &Path, server: &Path) -> Arc<Relay> {
        Relay::start_holding(path, server, 0)
    }

    /// Serves one client. From the first load on, holds replies back until `loads` were requested.
    pub(crate) fn start_holding(path: &Path, server: &Path, loads: usize) -> Arc<Relay> {
        let relay = Arc::new(Relay::default());
        relay.state.lock().at_once = loads;
        let listener = UnixListener::bind(path).unwrap();
        let (shared, server) = (Arc::clone(&relay), server.to_owned());
        thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = UnixStream::connect(server).unwrap();
            let (from_server, to_client) =
                (server.try_clone().unwrap(), client.try_clone().unwrap());
            let answers = Arc::clone(&shared);
            thread::spawn(move || forward(from_server, to_client, |_| answers.wait()));
            forward(client, server, |frame| shared.count(frame));
        });
        relay
    }

    /// Holds all replies from now on, until so many loads were requested.
    fn hold_for(&self, loads: usize) {
        let mut state = self.state.lock();
        state.until_loads = state.loads + loads;
    }

    fn count(&self, frame: &[u8]) {
        if frame.windows(LOAD.len()).any(|part| part == LOAD) {
            self.state.lock().loads += 1;
            self.changed.notify_all();
        }
    }

    fn wait(&self) {
        let is_held = |state: &mut Held| {
            state.loads < state.until_loads || state.loads > 0 && state.loads < state.at_once
        };
        self.changed.wait_while(&mut self.state.lock(), is_held);
    }

    /// Waits until so many loads were requested.
    pub(crate) fn wait_for(&self, loads: usize) {
        self.changed.wait_while(&mut self.state.lock(), |state| state.loads < loads);
    }

    /// Number of loads requested.
    pub(crate) fn loads(&self) -> usize {
        self.state.lock().loads
    }
}

/// Forwards frames until one side closes.
fn forward(mut from: UnixStream, mut to: UnixStream, before: impl Fn(&[u8])) {
    let mut length = [0; 4];
    while from.read_exact(&mut length).is_ok() {
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        if from.read_exact(&mut frame).is_err() {
            break;
        }
        before(&frame);
        if to.write_all(&[&length[..], &frame].concat()).is_err() {
            break;
        }
    }
    // The other side may have closed already.
    let _ = to.shutdown(Shutdown::Both);
}

fn through(relay: &Path, server: &Server) -> Client {
    let addresses = vec![Address::Unix(relay.to_owned())];
    Client::connect(Options { addresses, ..server.options() }).unwrap()
}

fn commit_many(server: &Server, count: u64) -> (Tid, Vec<Oid>) {
    let objects: Vec<_> = (0..count).map(|oid| (oid, "something")).collect();
    let tid = commit(&server.client(), &objects);
    (tid, (0..count).map(Oid).collect())
}

#[test]
fn a_thousand_objects_are_asked_for_before_the_first_is_answered() {
    let server = Server::start(Encoding::Msgpack);
    let (tid, oids) = commit_many(&server, 1000);
    let path = server.path().with_file_name("relay");
    let relay = Relay::start(&path, &server.path());
    let client = through(&path, &server);
    relay.hold_for(oids.len());
    let answers = client.load_many(&oids, tid.next()).unwrap();
    assert_eq!(answers.len(), oids.len());
    for answer in answers {
        assert_eq!(answer.unwrap().unwrap().data, record("something"));
    }
}

#[test]
fn a_prefetch_waits_for_nothing_and_a_load_does_not_ask_again() {
    let server = Server::start(Encoding::Pickle);
    let (tid, oids) = commit_many(&server, 50);
    let path = server.path().with_file_name("relay");
    let relay = Relay::start(&path, &server.path());
    let client = through(&path, &server);
    // One more than is prefetched: no reply comes while a prefetch could be waiting for it.
    relay.hold_for(oids.len() + 1);
    client.prefetch(&oids, tid.next());
    client.prefetch(&oids, tid.next());
    let last = thread::scope(|scope| {
        let joined = scope.spawn(|| client.load_before(oids[7], tid.next()));
        // As of another tid, so it is a load of its own.
        client.load_before(oids[7], tid).unwrap();
        joined.join().unwrap()
    });
    assert_eq!(last.unwrap().unwrap().data, record("something"));
    client.load_many(&oids, tid.next()).unwrap();
    assert_eq!(relay.state.lock().loads, oids.len() + 1);
}

#[test]
fn more_than_all_buffers_hold_is_loaded_at_once() {
    let server = Server::start(Encoding::Msgpack);
    let writer = server.client();
    let data = Bytes::from(vec![b'N'; 4000]);
    let mut transaction = writer.begin(&TransactionOptions::default()).unwrap();
    for oid in (0..6000).map(Oid) {
        transaction.store(oid, Tid::ZERO, data.clone()).unwrap();
    }
    transaction.vote().unwrap();
    let tid = transaction.finish(|_| ()).unwrap();
    let oids: Vec<_> = (0..6000).map(Oid).collect();
    let client = server.client();
    let answers = client.load_many(&oids, tid.next()).unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Some(_)))));
    assert_eq!(answers.len(), oids.len());
}
