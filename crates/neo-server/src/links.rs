//! The connections of a node, in both directions: sockets, TLS, greetings, frames.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use tokio::task::AbortHandle;
use zodium_neo::{Address, ConnectionId, LinkTask, Packet, Refusals};
use zodium_net::{CloseReason, Host, Keepalive, Limits, Link, LinkMetrics};

use crate::session::{Connections, Sessions};
use crate::tls::NodeTls;

/// NEO's keepalive: a peer that has vanished is noticed after a minute and a half.
pub(crate) const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 3 };

/// Packets from this length on are sent without a copy.
const PUSHED_BYTES_MIN: usize = 16 << 10;

/// While so many reads for a connection are under way, no more of its requests are taken: each read
/// takes memory.
const READS_MAX: usize = 256;

/// What a node's driver is told of the node's connections.
pub(crate) trait Events {
    /// A peer with this address has connected; the name of the connection.
    fn accepted(&self, peer: &str) -> ConnectionId;
    /// A connection that was dialled is there.
    fn connected(&self, connection: ConnectionId);
    /// A packet has arrived. What follows from it is done at [`Events::handled`].
    fn received(&self, connection: ConnectionId, packet: Packet<'_>);
    /// All packets that were there have been handed in.
    fn handled(&self);
    /// A connection has ended, or was not made.
    fn lost(&self, connection: ConnectionId);
}

/// A connection that is open, and its reads under way.
struct Open {
    link: Link,
    reads: Rc<Cell<usize>>,
}

/// A read on another thread, whose result goes to a connection.
pub(crate) struct Reading {
    link: Link,
    /// Those of the connection, this one included.
    reads: Rc<Cell<usize>>,
}

impl Reading {
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let reads = self.reads.get();
        self.reads.set(reads - 1);
        if reads == READS_MAX {
            self.link.wake();
        }
    }
}

/// The connections of a node. All of them are on one thread.
pub(crate) struct Links {
    /// Itself, for tasks.
    pub(crate) this: Weak<Links>,
    /// The driver, which owns this.
    events: Weak<dyn Events>,
    open: RefCell<FxHashMap<ConnectionId, Open>>,
    /// Connections that are being made.
    pub(crate) dialling: RefCell<FxHashMap<ConnectionId, AbortHandle>>,
    /// The connection whose session is opened next, if the node knows it.
    pub(crate) opening: Cell<Option<ConnectionId>>,
    pub(crate) tls: Option<Arc<NodeTls>>,
    /// Why nodes cannot be connected to: each reason is a warning once.
    pub(crate) failures: RefCell<FxHashMap<Address, String>>,
    /// Peers that are no nodes of this cluster.
    refusals: RefCell<Refusals>,
    pub(crate) limits: Limits,
    pub(crate) host: Host<Sessions>,
}

impl Links {
    /// No connections yet; with certificates all of them are encrypted.
    pub(crate) fn new(
        events: Weak<dyn Events>,
        tls: Option<Arc<NodeTls>>,
        metrics: Arc<LinkMetrics>,
        limits: Limits,
    ) -> Rc<Links> {
        Rc::new_cyclic(|this: &Weak<Links>| {
            let connections: Weak<dyn Connections> = this.clone();
            Links {
                this: this.clone(),
                events,
                open: RefCell::default(),
                dialling: RefCell::default(),
                opening: Cell::new(None),
                tls,
                failures: RefCell::default(),
                refusals: RefCell::default(),
                limits,
                host: Host::new(Sessions::new(connections), metrics, None),
            }
        })
    }

    /// Counts a read for a connection, while what this gives lives; `None` if that has ended.
    pub(crate) fn begin_read(&self, connection: ConnectionId) -> Option<Reading> {
        let open = self.open.borrow();
        let Open { link, reads } = open.get(&connection)?;
        reads.set(reads.get() + 1);
        Some(Reading { link: link.clone(), reads: Rc::clone(reads) })
    }

    /// Bytes that wait to be sent to a connection.
    pub(crate) fn unsent_bytes_of(&self, connection: ConnectionId) -> usize {
        self.open.borrow().get(&connection).map_or(0, |open| open.link.output().len())
    }

    /// Bytes that wait to be sent.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.open.borrow().values().map(|open| open.link.output().len() as u64).sum()
    }

    /// Does what a node asks for. Gives a connection that is over at once, and of whose end nothing
    /// else tells: it was closed while it was still being made.
    #[must_use]
    pub(crate) fn apply(&self, task: LinkTask) -> Option<ConnectionId> {
        match task {
            LinkTask::Dial { connection, address, after } => {
                self.dial(connection, address, after);
                None
            }
            LinkTask::Send { connection, packet } => {
                self.send(connection, packet);
                None
            }
            LinkTask::Close { connection } => self.close(connection).then_some(connection),
        }
    }

    /// Sends a packet; nothing if the connection has ended. It ends if its peer leaves more unread
    /// than the limit for pushed messages: for that answers count, too.
    fn send(&self, connection: ConnectionId, packet: Bytes) {
        if let Some(Open { link, .. }) = self.open.borrow().get(&connection) {
            let length = packet.len();
            match length {
                PUSHED_BYTES_MIN.. => link.output().push(packet),
                _ => link.output().buffer().extend_from_slice(&packet),
            }
            link.note_push(length);
            link.wake();
        }
    }

    /// Closes a connection after what was sent; [`Events::lost`] tells of its end. But one that is
    /// still being made is over at once, and nothing tells of it: `true`.
    #[must_use]
    fn close(&self, connection: ConnectionId) -> bool {
        if let Some(dialling) = self.dialling.borrow_mut().remove(&connection) {
            dialling.abort();
            return true;
        }
        if let Some(Open { link, .. }) = self.open.borrow().get(&connection) {
            link.close(CloseReason::Done);
        }
        false
    }

    /// A connection has ended, or was not made.
    pub(crate) fn lost(&self, connection: ConnectionId) {
        self.open.borrow_mut().remove(&connection);
        self.dialling.borrow_mut().remove(&connection);
        if let Some(events) = self.events.upgrade() {
            events.lost(connection);
        }
    }
}

impl Connections for Links {
    fn opened(&self, link: &Link) -> Option<ConnectionId> {
        let events = self.events.upgrade()?;
        let known = self.opening.take();
        let connection = known.unwrap_or_else(|| events.accepted(link.peer()));
        let open = Open { link: link.clone(), reads: Rc::default() };
        self.open.borrow_mut().insert(connection, open);
        if known.is_some() {
            events.connected(connection);
            events.handled();
        }
        Some(connection)
    }

    fn received(&self, connection: ConnectionId, packet: Packet<'_>) {
        if let Some(events) = self.events.upgrade() {
            events.received(connection, packet);
        }
    }

    fn handled(&self) {
        if let Some(events) = self.events.upgrade() {
            events.handled();
        }
    }

    fn takes_requests(&self, connection: ConnectionId) -> bool {
        let open = self.open.borrow();
        open.get(&connection).is_none_or(|open| open.reads.get() < READS_MAX)
    }

    fn admit_refusal(&self, peer: &str, kind: &str) -> Option<u64> {
        self.refusals.borrow_mut().admit(peer, kind, Instant::now())
    }

    fn closed(&self, connection: ConnectionId) {
        self.lost(connection);
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio::io::AsyncWriteExt;
    use tokio::task::{LocalSet, yield_now};
    use zodium_neo::messages::Ping;
    use zodium_neo::{GREETING, encode};

    use super::*;

    const ONE: ConnectionId = ConnectionId::new(1);

    /// Counts packets.
    #[derive(Default)]
    struct Counter(Cell<usize>);

    impl Events for Counter {
        fn accepted(&self, _: &str) -> ConnectionId {
            ONE
        }

        fn connected(&self, _: ConnectionId) {}

        fn received(&self, _: ConnectionId, _: Packet<'_>) {
            self.0.set(self.0.get() + 1);
        }

        fn handled(&self) {}

        fn lost(&self, _: ConnectionId) {}
    }

    #[tokio::test]
    async fn a_peer_with_many_reads_under_way_is_not_read_from() {
        let counter = Rc::new(Counter::default());
        let events: Weak<dyn Events> = Rc::<Counter>::downgrade(&counter);
        let links = Links::new(events, None, Arc::default(), Limits::default());
        let (stream, mut peer) = tokio::io::duplex(1 << 10);
        let asking = async {
            let mut ping = BytesMut::new();
            encode(0, Ping {}, &mut ping).unwrap();
            peer.write_all(&GREETING).await.unwrap();
            let arrives = async |packets| {
                for _ in 0..10 {
                    yield_now().await;
                }
                assert_eq!(counter.0.get(), packets);
            };
            peer.write_all(&ping).await.unwrap();
            arrives(1).await;
            let mut reads: Vec<_> = (1..READS_MAX).map(|_| links.begin_read(ONE)).collect();
            peer.write_all(&ping).await.unwrap();
            arrives(2).await;
            reads.push(links.begin_read(ONE));
            peer.write_all(&ping).await.unwrap();
            arrives(2).await;
            reads.pop();
            arrives(3).await;
            drop(reads);
            assert_eq!(links.open.borrow()[&ONE].reads.get(), 0);
        };
        // In a task of its own: it goes on only when it is woken.
        let serving = Rc::clone(&links);
        let set = LocalSet::new();
        set.spawn_local(async move {
            serving.host.run(stream, "peer", None, Limits::default()).await;
        });
        set.run_until(asking).await;
    }

    #[tokio::test]
    async fn probes_of_a_host_are_logged_once_in_a_while() {
        let counter = Rc::new(Counter::default());
        let events: Weak<dyn Events> = Rc::<Counter>::downgrade(&counter);
        let links = Links::new(events, None, Arc::default(), Limits::default());
        let probe = async |port: u16, bytes: &[u8]| {
            let (stream, mut peer) = tokio::io::duplex(1 << 10);
            peer.write_all(bytes).await.unwrap();
            links.host.run(stream, &format!("10.0.0.1:{port}"), None, Limits::default()).await;
        };
        let probing = async {
            probe(1, b"GET / HTTP/1.1").await;
            probe(2, b"GET /health HTTP/1.1").await;
            probe(3, &[0x16, 3, 1]).await;
            probe(4, &[&GREETING[..], b"xx"].concat()).await;
        };
        LocalSet::new().run_until(probing).await;
        for kind in ["not NEO", "TLS", "a malformed message"] {
            assert_eq!(links.admit_refusal("10.0.0.1:9", kind), None, "{kind}");
            assert_eq!(links.admit_refusal("10.0.0.2:9", kind), Some(0), "{kind}");
        }
    }
}
