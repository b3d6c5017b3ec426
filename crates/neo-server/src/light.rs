//! Serves a node without a database, an admin or a master, from its start to its end.

use std::cell::RefCell;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};
use zodium_neo::{Address, ConnectionId, Output, Packet};
use zodium_net::{Bound, Limits, LinkMetrics};

use crate::known_masters::{KnownMasters, MastersTold};
use crate::links::{Events, KEEPALIVE, Links};
use crate::tls::NodeTls;

/// Most bytes that a peer leaves unread, above which its connection ends: two of the largest
/// messages. A client that does not read is told of all commits nevertheless.
const UNREAD_BYTES_MAX: usize = 128 << 20;
/// Longest time to send the last answers.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);
/// Interval between checks whether the last answers are sent.
const FAREWELL_PAUSE: Duration = Duration::from_millis(5);

/// A node to serve.
pub struct ServeLight<Settings, Status> {
    /// Its options.
    pub settings: Settings,
    /// Where it listens, at the address of its settings.
    pub listener: std::net::TcpListener,
    /// Its certificates; `None`: the cluster has no TLS.
    pub tls: Option<Arc<NodeTls>>,
    /// A view of it for other threads.
    pub watch: LightWatch<Status>,
    /// Told when other masters are known than those of the settings.
    pub masters_told: Option<MastersTold>,
}

/// A view of a node for other threads: the monitor's. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LightWatch<Status> {
    status: Arc<Mutex<Status>>,
    links: Arc<LinkMetrics>,
}

impl<Status: Clone> LightWatch<Status> {
    /// How the node is.
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// The counters of its connections.
    pub fn links(&self) -> &LinkMetrics {
        &self.links
    }
}

/// The state machine of a node, which does no I/O.
pub(crate) trait LightNode: 'static {
    /// What it says of itself.
    type Status: 'static;

    fn start(&mut self);
    fn accepted(&mut self, name: String) -> ConnectionId;
    fn connected(&mut self, connection: ConnectionId);
    fn received(&mut self, connection: ConnectionId, packet: Packet<'_>);
    fn closed(&mut self, connection: ConnectionId);
    fn woken(&mut self, alarm: u64);
    /// What the node asks for since the last call, in order.
    fn take_outputs(&mut self) -> Vec<Output>;
    fn status(&mut self) -> Self::Status;
    fn masters(&self) -> &[Address];
}

/// Serves a node, which `create` makes of its settings, until its cluster, or `stop`, ends it.
/// Answers that were given are sent then. Must run in a current-thread runtime of tokio.
///
/// # Errors
/// When the system refuses the listener.
pub(crate) async fn serve_light<Settings, N: LightNode>(
    serve: ServeLight<Settings, N::Status>,
    masters: Vec<Address>,
    create: impl FnOnce(Settings) -> N,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let serving = async {
        let ServeLight { settings, listener, tls, watch, masters_told } = serve;
        let listener = Bound::inherited_tcp(listener)?.listen()?.with_keepalive(KEEPALIVE);
        let listener = match &tls {
            Some(tls) => listener.with_tls(tls.accepting()),
            None => listener,
        };
        let masters = KnownMasters::new(masters_told, masters);
        let driver = Rc::new_cyclic(|this: &Weak<Driver<N>>| {
            let events: Weak<dyn Events> = this.clone();
            let limits = Limits { push_bytes_max: UNREAD_BYTES_MAX, ..Limits::default() };
            let links = Links::new(events, tls, Arc::clone(&watch.links), limits);
            let node = RefCell::new(create(settings));
            Driver { this: this.clone(), node, links, watch, masters, ends: Notify::new() }
        });
        let accepting = tokio::task::spawn_local(Rc::clone(&driver.links).accept(listener));
        driver.node.borrow_mut().start();
        driver.apply();
        tokio::select! {
            () = driver.ends.notified() => {}
            () = stop => {}
        }
        accepting.abort();
        send_last(&driver.links).await;
        Ok(())
    };
    LocalSet::new().run_until(serving).await
}

/// Waits until all answers are sent, for some time.
async fn send_last(links: &Links) {
    let sent = async {
        while links.unsent_bytes() > 0 {
            sleep(FAREWELL_PAUSE).await;
        }
    };
    // A peer that does not read misses the end of what it was told.
    let _ = timeout(FAREWELL_TIME_MAX, sent).await;
}

/// The node with its connections. All of it is on one thread.
struct Driver<N: LightNode> {
    /// Itself, for tasks.
    this: Weak<Driver<N>>,
    node: RefCell<N>,
    links: Rc<Links>,
    watch: LightWatch<N::Status>,
    masters: KnownMasters,
    ends: Notify,
}

impl<N: LightNode> Driver<N> {
    /// Does what the node asks for.
    fn apply(&self) {
        loop {
            let tasks = self.node.borrow_mut().take_outputs();
            if tasks.is_empty() {
                break;
            }
            tasks.into_iter().for_each(|task| self.apply_one(task));
        }
        let mut node = self.node.borrow_mut();
        *self.watch.status.lock() = node.status();
        self.masters.observe(node.masters());
    }

    fn apply_one(&self, task: Output) {
        match task {
            Output::Link(task) => {
                if let Some(over) = self.links.apply(task) {
                    self.node.borrow_mut().closed(over);
                }
            }
            Output::Wake { alarm, after } => {
                let this = self.this.clone();
                tokio::task::spawn_local(async move {
                    sleep(after).await;
                    if let Some(driver) = this.upgrade() {
                        driver.node.borrow_mut().woken(alarm);
                        driver.apply();
                    }
                });
            }
            Output::Exit => self.ends.notify_one(),
        }
    }
}

impl<N: LightNode> Events for Driver<N> {
    fn accepted(&self, peer: &str) -> ConnectionId {
        self.node.borrow_mut().accepted(peer.to_owned())
    }

    fn connected(&self, connection: ConnectionId) {
        self.node.borrow_mut().connected(connection);
    }

    fn received(&self, connection: ConnectionId, packet: Packet<'_>) {
        self.node.borrow_mut().received(connection, packet);
    }

    fn handled(&self) {
        self.apply();
    }

    fn lost(&self, connection: ConnectionId) {
        self.node.borrow_mut().closed(connection);
        self.apply();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;
    use zodium_neo::{GREETING, LinkTask};

    use super::*;

    /// A node that says much to each peer, and ends with a connection.
    #[derive(Default)]
    struct Talker(Vec<Output>);

    impl LightNode for Talker {
        type Status = ();

        fn start(&mut self) {}

        fn accepted(&mut self, _: String) -> ConnectionId {
            let connection = ConnectionId::new(1);
            let packet = Bytes::from(vec![0; 1 << 20]);
            let send = |_| Output::Link(LinkTask::Send { connection, packet: packet.clone() });
            // More than the buffers of two sockets beyond the limit.
            self.0.extend((0..256).map(send));
            connection
        }

        fn connected(&mut self, _: ConnectionId) {}

        fn received(&mut self, _: ConnectionId, _: Packet<'_>) {}

        fn closed(&mut self, _: ConnectionId) {
            self.0.push(Output::Exit);
        }

        fn woken(&mut self, _: u64) {}

        fn take_outputs(&mut self) -> Vec<Output> {
            std::mem::take(&mut self.0)
        }

        fn status(&mut self) {}

        fn masters(&self) -> &[Address] {
            &[]
        }
    }

    #[tokio::test]
    async fn a_peer_that_reads_nothing_is_disconnected() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let watch = LightWatch::<()>::default();
        let serve = ServeLight { settings: (), listener, tls: None, watch, masters_told: None };
        let deaf = async {
            let mut peer = TcpStream::connect(address).await.unwrap();
            peer.write_all(&GREETING).await.unwrap();
            std::future::pending::<()>().await;
            drop(peer);
        };
        let stop = std::future::pending();
        let serving = serve_light(serve, Vec::new(), |()| Talker::default(), stop);
        tokio::select! {
            ended = timeout(Duration::from_secs(60), serving) => ended.unwrap().unwrap(),
            () = deaf => {}
        }
    }
}
