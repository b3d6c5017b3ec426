//! Links over TLS, over a pipe that takes little at a time; handshakes that go wrong.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::{JoinHandle, LocalSet};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};
use zodium_tls::{CertificateFiles, ServerFiles, ServerTls};

use crate::handshake::{
    HANDSHAKE_TIME_MAX, HANDSHAKES_MAX, HandshakeError, Handshakes, PLACE_TIME_MAX, Secured,
};
use crate::link::{self, Limits, Link};
use crate::session::{CloseReason, Consumed, Session};
use crate::unfinished::UNFINISHED_MAX;

/// Bytes that the pipe takes at once: fewer than a TLS record has.
const PIPE_BYTES: usize = 700;
const ANSWER_BYTES: usize = 1000;

/// One certificate for both sides, which both trust.
struct Party {
    client: Arc<ClientConfig>,
    server: Arc<ServerTls>,
}

impl Party {
    fn new() -> Party {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["server".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("both.pem");
        std::fs::write(&path, certificate.pem() + &key.serialize_pem()).unwrap();
        let server = ServerTls::load(ServerFiles {
            own: CertificateFiles { certificate: path.clone(), key: None, key_password: None },
            authenticate: path,
        })
        .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let client = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        Party { client: Arc::new(client), server: Arc::new(server) }
    }

    async fn connect(&self, pipe: DuplexStream) -> TlsStream<DuplexStream> {
        let name = ServerName::try_from("server").unwrap();
        TlsConnector::from(Arc::clone(&self.client)).connect(name, pipe).await.unwrap()
    }
}

/// Answers each byte with many.
struct Echo {
    link: Link,
    seen: Rc<Cell<usize>>,
    closed: Rc<Cell<bool>>,
}

impl Session for Echo {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        let mut consumed = 0;
        while consumed < bytes.len() && !self.link.is_congested() {
            let answer = vec![bytes[consumed]; ANSWER_BYTES];
            self.link.output().push(Bytes::from(answer));
            consumed += 1;
        }
        self.seen.set(self.seen.get() + consumed);
        Ok(Consumed::Bytes(consumed))
    }

    fn received_large(&mut self, _: Bytes) -> Result<(), CloseReason> {
        Err(CloseReason::Refused)
    }

    fn is_established(&self) -> bool {
        true
    }

    fn closed(&mut self) {
        self.closed.set(true);
    }
}

struct Running {
    peer: TlsStream<DuplexStream>,
    link: Link,
    seen: Rc<Cell<usize>>,
    closed: Rc<Cell<bool>>,
}

async fn start(limits: Limits) -> Running {
    let party = Party::new();
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let handshakes = Handshakes::default();
    let (secured, peer) = tokio::join!(
        handshakes.shake(far, &party.server, async |_: &DuplexStream| Ok(())),
        party.connect(near)
    );
    let Ok(Secured { stream, identity }) = secured else { panic!("no handshake") };
    let link = Link::new(
        "peer".to_owned(),
        crate::Protocol::default(),
        Some(identity),
        limits,
        Arc::default(),
        crate::peer_log::PeerLog::default(),
    );
    let (seen, closed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let session = Echo { link: link.clone(), seen: Rc::clone(&seen), closed: Rc::clone(&closed) };
    let shared = Rc::new(crate::input::Shared::new(512, None));
    tokio::task::spawn_local(link::run(stream, link.clone(), session, shared));
    Running { peer, link, seen, closed }
}

fn run_local(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn answers_arrive_whole_however_little_the_socket_takes() {
    run_local(async {
        let mut running = start(Limits::default()).await;
        assert!(running.link.identity().is_some());
        let asked: Vec<u8> = (0..=255).collect();
        running.peer.write_all(&asked).await.unwrap();
        running.peer.flush().await.unwrap();
        for byte in asked {
            let mut answer = [0; ANSWER_BYTES];
            running.peer.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, [byte; ANSWER_BYTES]);
        }
    });
}

#[test]
fn the_last_record_leaves_without_another_to_push_it() {
    run_local(async {
        let mut running = start(Limits::default()).await;
        for _ in 0..20 {
            running.peer.write_all(b"a").await.unwrap();
            running.peer.flush().await.unwrap();
            running.peer.read_exact(&mut [0; ANSWER_BYTES]).await.unwrap();
        }
        running.link.output().push(Bytes::from(vec![b'!'; 3 * PIPE_BYTES]));
        running.link.wake();
        running.peer.read_exact(&mut [0; 3 * PIPE_BYTES]).await.unwrap();
    });
}

#[test]
fn a_peer_that_does_not_read_answers_gets_no_new_ones_and_loses_none() {
    run_local(async {
        let limits = Limits { output_bytes_high: 10_000, ..Limits::default() };
        let mut running = start(limits).await;
        running.peer.write_all(&[b'a'; 500]).await.unwrap();
        running.peer.flush().await.unwrap();
        settle().await;
        // 64 KiB are in TLS records; 10 KB and the answer that exceeded them wait.
        assert!(running.seen.get() < 100, "{} were answered", running.seen.get());
        let mut answers = vec![0; 500 * ANSWER_BYTES];
        running.peer.read_exact(&mut answers).await.unwrap();
        assert_eq!(running.seen.get(), 500);
    });
}

#[test]
fn a_peer_that_lets_pushed_messages_pile_up_is_disconnected() {
    run_local(async {
        let limits = Limits { push_bytes_max: 50_000, ..Limits::default() };
        let mut running = start(limits).await;
        for _ in 0..200 {
            running.link.output().push(Bytes::from(vec![b'!'; 1000]));
            running.link.note_push(1000);
            running.link.wake();
            tokio::task::yield_now().await;
        }
        let mut rest = Vec::new();
        // Bytes in TLS records are still taken; then the pipe ends without a close_notify.
        let _ = running.peer.read_to_end(&mut rest).await;
        assert!(running.closed.get());
        assert!(rest.len() < 100_000, "{}", rest.len());
    });
}

#[test]
fn what_is_no_handshake_ends_with_its_reason() {
    run_local(async {
        let party = Party::new();
        let handshakes = Handshakes::default();
        let begun = tokio::time::Instant::now();
        let meet = async |said: &'static [u8], stays: bool, speaks: bool| {
            let (mut near, far) = tokio::io::duplex(PIPE_BYTES);
            near.write_all(said).await.unwrap();
            let kept = stays.then_some(near);
            let spoken = async |_: &DuplexStream| match speaks {
                true => Ok(()),
                false => std::future::pending().await,
            };
            let outcome = handshakes.shake(far, &party.server, spoken).await;
            drop(kept);
            outcome.err().map(|error| error.to_string())
        };
        let said = |error: HandshakeError| Some(error.to_string());
        assert_eq!(meet(b"", false, true).await, said(HandshakeError::Closed));
        assert_eq!(meet(b"\0\0\0\x02Z5", true, true).await, said(HandshakeError::NotTls));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(meet(b"\x16\x03\x01\x02\0", true, true).await, said(HandshakeError::Slow));
        assert_eq!(begun.elapsed().as_secs(), HANDSHAKE_TIME_MAX.as_secs());
        assert_eq!(meet(b"", true, false).await, said(HandshakeError::Silent));
    });
}

/// The beginning of a ClientHello, as a scanner or an attacker may send it.
const HALF_A_HELLO: &[u8] = b"\x16\x03\x01\x02\0\x01";

type Handshaken = JoinHandle<Result<Secured<DuplexStream>, HandshakeError>>;

/// A server's handshakes, under way side by side.
struct Reception {
    party: Party,
    handshakes: Rc<Handshakes>,
}

impl Reception {
    fn new() -> Reception {
        Reception { party: Party::new(), handshakes: Rc::default() }
    }

    /// A peer that has sent these bytes, and the server's handshake with it.
    async fn meet(&self, sent: &[u8]) -> (DuplexStream, Handshaken) {
        let (mut near, far) = tokio::io::duplex(PIPE_BYTES);
        near.write_all(sent).await.unwrap();
        let (handshakes, server) = (Rc::clone(&self.handshakes), Arc::clone(&self.party.server));
        let handshake = tokio::task::spawn_local(async move {
            handshakes.shake(far, &server, async |_: &DuplexStream| Ok(())).await
        });
        (near, handshake)
    }

    async fn crowd(&self, count: usize, sent: &[u8]) -> Vec<(DuplexStream, Handshaken)> {
        let mut crowd = Vec::new();
        for _ in 0..count {
            crowd.push(self.meet(sent).await);
        }
        settle().await;
        crowd
    }

    /// Whether a well-behaved client completes its handshake.
    async fn lets_in_a_client(&self) -> bool {
        let (near, handshake) = self.meet(b"").await;
        let (secured, _client) = tokio::join!(handshake, self.party.connect(near));
        secured.unwrap().is_ok()
    }

    fn client_hello(&self) -> Vec<u8> {
        let name = ServerName::try_from("server").unwrap();
        let mut hello = Vec::new();
        let mut client = ClientConnection::new(Arc::clone(&self.party.client), name).unwrap();
        client.write_tls(&mut hello).unwrap();
        hello
    }
}

#[test]
fn a_handshake_more_than_may_be_waits_until_one_is_over() {
    run_local(async {
        let reception = Reception::new();
        let mut crowd = reception.crowd(HANDSHAKES_MAX, &reception.client_hello()).await;
        let mut late = std::pin::pin!(reception.lets_in_a_client());
        for _ in 0..200 {
            tokio::select! {
                biased;
                _ = &mut late => panic!("it did not wait"),
                () = tokio::task::yield_now() => {}
            }
        }
        let (gone, ended) = crowd.remove(0);
        drop(gone);
        assert!(matches!(ended.await.unwrap(), Err(HandshakeError::Closed)));
        assert!(late.await);
    });
}

#[test]
fn half_a_hello_keeps_no_client_out() {
    for count in [100, 1000] {
        run_local(async {
            let reception = Reception::new();
            let begun = tokio::time::Instant::now();
            let crowd = reception.crowd(count, HALF_A_HELLO).await;
            for _ in 0..20 {
                assert!(reception.lets_in_a_client().await);
            }
            assert_eq!(begun.elapsed(), Duration::ZERO, "a client waited for the crowd");
            for (_peer, handshake) in crowd {
                assert!(matches!(handshake.await.unwrap(), Err(HandshakeError::Slow)));
            }
            assert_eq!(begun.elapsed().as_secs(), HANDSHAKE_TIME_MAX.as_secs());
        });
    }
}

#[test]
fn a_peer_that_stops_after_its_hello_does_not_keep_its_place() {
    run_local(async {
        let reception = Reception::new();
        let crowd = reception.crowd(5 * HANDSHAKES_MAX, &reception.client_hello()).await;
        let begun = tokio::time::Instant::now();
        assert!(reception.lets_in_a_client().await);
        // The test's clock jumps to the next timer, which adds milliseconds.
        assert_eq!(begun.elapsed().as_millis() / PLACE_TIME_MAX.as_millis(), 5);
        for (_peer, handshake) in crowd {
            assert!(matches!(handshake.await.unwrap(), Err(HandshakeError::Slow)));
        }
    });
}

#[test]
fn time_in_the_queue_for_a_place_is_not_held_against_a_client() {
    run_local(async {
        let reception = Reception::new();
        let places = u32::try_from(HANDSHAKES_MAX).unwrap();
        let all = reception.handshakes.places.acquire_many(places).await.unwrap();
        let mut client = std::pin::pin!(reception.lets_in_a_client());
        assert!(tokio::time::timeout(HANDSHAKE_TIME_MAX * 3, &mut client).await.is_err());
        drop(all);
        assert!(client.await);
    });
}

#[test]
fn the_newest_of_too_many_unfinished_handshakes_displaces_the_oldest() {
    run_local(async {
        let reception = Reception::new();
        let mut crowd = reception.crowd(UNFINISHED_MAX + 1, HALF_A_HELLO).await;
        let (_peer, oldest) = crowd.remove(0);
        assert!(matches!(oldest.await.unwrap(), Err(HandshakeError::Displaced)));
        assert!(crowd.iter().all(|(_, handshake)| !handshake.is_finished()));
        // Handshakes that are over make room.
        crowd.truncate(10);
        settle().await;
        let more = reception.crowd(UNFINISHED_MAX - 10, HALF_A_HELLO).await;
        assert!(crowd.iter().chain(&more).all(|(_, handshake)| !handshake.is_finished()));
    });
}
