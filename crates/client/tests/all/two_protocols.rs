//! Two protocols on the same workers: ZEO, and one that sends each line back.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;
use zodium_client::{Client, Options, TransactionOptions};
use zodium_disk::SystemClock;
use zodium_engine::{Config as StorageConfig, Database};
use zodium_memorystorage::MemoryStorage;
use zodium_net::{
    Bound, CloseReason, Consumed, Link, Protocol, Protocols, Service, Session, WorkerOptions,
    Workers,
};
use zodium_types::{Address, Oid, Tid};
use zodium_zeo::codec::Encoding;
use zodium_zeo_server::{Config, ServedStorage, Server, ZeoService};

const ZEO: Protocol = Protocol(0);
const ECHO: Protocol = Protocol(1);
const UNKNOWN: Protocol = Protocol(2);
const TIME_MAX: Duration = Duration::from_secs(20);

/// Sends lines back. A line of `wait` is never answered. Lines come in blocks: a first byte says
/// how many bytes at least.
struct Echo {
    link: Link,
    seen: Arc<Seen>,
}

/// What the sessions of all workers have seen.
#[derive(Default)]
struct Seen {
    calls: AtomicUsize,
    closed: AtomicUsize,
}

struct EchoService(Arc<Seen>);

impl Service for EchoService {
    type Session = Echo;

    fn open(&self, link: Link) -> Echo {
        Echo { link, seen: Arc::clone(&self.0) }
    }
}

impl Session for Echo {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        self.seen.calls.fetch_add(1, Ordering::Relaxed);
        let mut consumed = 0;
        while let Some((least, line)) = bytes[consumed..].split_first() {
            let at_least = usize::from(*least) + 1;
            let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
                return Ok(Consumed::Need { consumed, at_least });
            };
            if line[..end] != *b"wait" {
                self.link.output().buffer().extend_from_slice(&line[..=end]);
            }
            consumed += end + 2;
        }
        Ok(Consumed::Bytes(consumed))
    }

    fn received_large(&mut self, _: Bytes) -> Result<(), CloseReason> {
        panic!("no frame was announced as large")
    }

    fn is_established(&self) -> bool {
        true
    }

    fn closed(&mut self) {
        self.seen.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a test beside a server of both protocols: it gets their addresses, and a place for an
/// address that the server is to connect to.
fn with_server(test: impl FnOnce(&[Address; 3], oneshot::Sender<Address>, &Seen) + Send) {
    let storage = Arc::new(MemoryStorage::new());
    let clock = Arc::new(SystemClock::new());
    let storage = Database::start(storage, clock, &StorageConfig::default()).unwrap();
    let served = ServedStorage { storage: Arc::clone(&storage), allow: None };
    let config = Config {
        encoding: Encoding::Msgpack,
        frame_bytes_max: 1 << 24,
        read_only: false,
        notice_interval: Duration::from_millis(1),
    };
    let server = Arc::new(Server::new(config, BTreeMap::from([("1".to_owned(), served)])));
    let seen = Arc::new(Seen::default());
    let seen_by_sessions = Arc::clone(&seen);
    let make = move |_| {
        let zeo = ZeoService::new(Arc::clone(&server));
        Protocols::default().with(zeo).with(EchoService(Arc::clone(&seen_by_sessions)))
    };
    let options = WorkerOptions { count: 2, ..WorkerOptions::default() };
    let workers = Workers::start(options, make).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|scope| {
        runtime.block_on(async {
            let mut listeners = Vec::new();
            for protocol in [ZEO, ECHO, UNKNOWN] {
                let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
                let listener = Bound::bind(&address).await.unwrap().listen().unwrap();
                listeners.push(listener.with_protocol(protocol));
            }
            let addresses = [0, 1, 2].map(|place| listeners[place].address().clone());
            let ((dial, mut dialled), (end, mut ended)) = (oneshot::channel(), oneshot::channel());
            let seen = &seen;
            scope.spawn(move || {
                test(&addresses, dial, seen);
                end.send(()).unwrap();
            });
            let mut is_open = true;
            loop {
                tokio::select! {
                    (incoming, peer) = listeners[0].accept() => workers.assign(incoming, peer),
                    (incoming, peer) = listeners[1].accept() => workers.assign(incoming, peer),
                    (incoming, peer) = listeners[2].accept() => workers.assign(incoming, peer),
                    address = &mut dialled, if is_open => {
                        is_open = false;
                        if let Ok(address) = address {
                            workers.connect(&address, ECHO).await.unwrap();
                        }
                    }
                    _ = &mut ended => break,
                }
            }
        });
    });
    workers.stop(Duration::from_secs(1));
    storage.close().unwrap();
}

fn connect(address: &Address) -> TcpStream {
    let Address::Tcp { host, port } = address else { unreachable!() };
    let stream = TcpStream::connect((host.as_str(), *port)).unwrap();
    stream.set_read_timeout(Some(TIME_MAX)).unwrap();
    stream
}

fn line_of(stream: &TcpStream) -> String {
    let mut line = String::new();
    BufReader::with_capacity(1, stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn clients_of_both_protocols_are_served_at_the_same_time() {
    with_server(|addresses, dial, _| {
        drop(dial);
        let clients: Vec<Client> =
            (0..3).map(|_| Client::connect(Options::new(addresses[0].clone())).unwrap()).collect();
        let mut lines: Vec<TcpStream> = (0..3).map(|_| connect(&addresses[1])).collect();
        for (number, client) in clients.iter().enumerate() {
            let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
            let data = Bytes::from(format!("N.U\u{1}{number}."));
            transaction.store(Oid(number as u64), Tid::ZERO, data.clone()).unwrap();
            lines[number].write_all(format!("\0line {number}\n").as_bytes()).unwrap();
            transaction.vote().unwrap();
            let tid = transaction.finish(|_| ()).unwrap();
            assert_eq!(line_of(&lines[number]), format!("line {number}\n"));
            let found = clients[(number + 1) % 3].load_before(Oid(number as u64), tid.next());
            assert_eq!(found.unwrap().unwrap().data, data);
        }
    });
}

#[test]
fn server_speaks_a_protocol_on_a_connection_that_it_has_made() {
    with_server(|_, dial, _| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (host, port) = (address.ip().to_string(), address.port());
        dial.send(Address::Tcp { host, port }).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"\0hello\n").unwrap();
        assert_eq!(line_of(&stream), "hello\n");
    });
}

#[test]
fn session_is_called_again_when_as_much_as_it_needs_has_arrived() {
    with_server(|addresses, dial, seen| {
        drop(dial);
        let mut stream = connect(&addresses[1]);
        stream.set_nodelay(true).unwrap();
        stream.write_all(b"\0first\n\x64").unwrap();
        assert_eq!(line_of(&stream), "first\n");
        let before = seen.calls.load(Ordering::Relaxed);
        for _ in 0..99 {
            stream.write_all(b"x").unwrap();
            std::thread::sleep(Duration::from_micros(300));
        }
        stream.write_all(b"\n\0last\n").unwrap();
        assert_eq!(line_of(&stream), format!("{}\n", "x".repeat(99)));
        assert_eq!(line_of(&stream), "last\n");
        // One for the block, at most two if its end came in pieces.
        assert!(seen.calls.load(Ordering::Relaxed) - before <= 2);
    });
}

#[test]
fn end_of_a_peer_is_noticed_while_its_session_has_nothing_to_answer() {
    with_server(|addresses, dial, seen| {
        drop(dial);
        let mut stream = connect(&addresses[1]);
        stream.write_all(b"\0wait\n\0ready\n").unwrap();
        assert_eq!(line_of(&stream), "ready\n");
        assert_eq!(seen.closed.load(Ordering::Relaxed), 0);
        drop(stream);
        let started = Instant::now();
        while seen.closed.load(Ordering::Relaxed) == 0 {
            assert!(started.elapsed() < TIME_MAX, "the session does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn connection_of_a_protocol_without_a_service_is_closed() {
    with_server(|addresses, dial, _| {
        drop(dial);
        let mut stream = connect(&addresses[2]);
        assert_eq!(stream.read(&mut [0; 9]).unwrap(), 0);
        let client = Client::connect(Options::new(addresses[0].clone())).unwrap();
        assert_eq!(client.last_tid(), Tid::ZERO);
    });
}
