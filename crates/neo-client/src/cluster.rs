//! What all threads of a client share: the session with the primary master, the routing, the
//! connections to storages, and the commits.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use rustc_hash::FxHashMap;
use tracing::debug;
use zodium_neo::messages::RequestIdentification;
use zodium_neo::{Extra, Message, NodeId, NodeType};
use zodium_tls::{CertificateFiles, ClientFiles, ClientTls, Trust};
use zodium_transport::{Patience, TlsSide};
use zodium_types::Tid;

use crate::cache::CurrentRevisions;
use crate::commits::Commits;
use crate::connection::{Connection, Receiver};
use crate::routing::Routing;
use crate::session::{IDENTIFICATION_TIME_MAX, Session};
use crate::storage_links::StorageLinks;
use crate::stores::Event;
use crate::{NeoError, Options, TlsFiles};

/// What all threads of a client share.
pub(crate) struct Cluster {
    pub(crate) options: Options,
    tls: Option<TlsSide>,
    pub(crate) patience: Patience,
    phase: Mutex<Phase>,
    changed: Condvar,
    pub(crate) routing: RwLock<Routing>,
    pub(crate) links: StorageLinks,
    pub(crate) commits: Commits,
    pub(crate) current: Arc<CurrentRevisions>,
    /// Where transactions learn that an older one waits for them, by temporary tid.
    pub(crate) transactions: Mutex<FxHashMap<Tid, Sender<Event>>>,
}

/// Whether there is a primary master.
enum Phase {
    /// Not now; why the last attempt failed.
    Connecting(Arc<str>),
    Connected(Arc<Session>),
    /// Never again.
    Over(NeoError),
}

/// What storages send without being asked.
struct StorageReceiver {
    cluster: std::sync::Weak<Cluster>,
}

impl Cluster {
    /// A cluster that is not connected.
    pub(crate) fn new(options: Options, patience: Patience) -> Result<Cluster, NeoError> {
        let tls = options.tls.as_ref().map(tls_side).transpose()?;
        let current = Arc::new(CurrentRevisions::new(options.cache_bytes));
        Ok(Cluster {
            options,
            tls,
            patience,
            phase: Mutex::new(Phase::Connecting("it is being looked for".into())),
            changed: Condvar::new(),
            routing: RwLock::default(),
            links: StorageLinks::default(),
            commits: Commits::new(Arc::clone(&current)),
            current,
            transactions: Mutex::default(),
        })
    }

    /// What a connection needs besides its address.
    pub(crate) fn security(&self) -> (Option<&TlsSide>, &Patience) {
        (self.tls.as_ref(), &self.patience)
    }

    /// The moment until which a call that begins now waits.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.options.wait
    }

    /// The session, for which it waits until the deadline.
    pub(crate) fn session(&self, deadline: Instant) -> Result<Arc<Session>, NeoError> {
        let found = self.patience.wait(Some(deadline), |until| {
            let mut phase = self.phase.lock();
            loop {
                match &*phase {
                    Phase::Connected(session) => return Some(Ok(Arc::clone(session))),
                    Phase::Over(error) => return Some(Err(error.clone())),
                    Phase::Connecting(_) => {
                        let until = until.unwrap_or(deadline);
                        if self.changed.wait_until(&mut phase, until).timed_out() {
                            return None;
                        }
                    }
                }
            }
        })?;
        found.unwrap_or_else(|| Err(self.no_primary()))
    }

    fn no_primary(&self) -> NeoError {
        let reason = match &*self.phase.lock() {
            Phase::Connecting(reason) => Arc::clone(reason),
            _ => "it has only now been found".into(),
        };
        let cluster = self.options.cluster.as_str().into();
        NeoError::NoPrimary { cluster, seconds: self.options.wait.as_secs(), reason }
    }

    /// Whether there is a session.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(&*self.phase.lock(), Phase::Connected(_))
    }

    /// Why no transaction can be committed, if so.
    pub(crate) fn obstacle(&self) -> Option<String> {
        match &*self.phase.lock() {
            Phase::Connected(session) => session.master.silent_seconds().map(|seconds| {
                let cluster = &self.options.cluster;
                format!(
                    "the primary master of the NEO cluster {cluster:?} has not answered for \
                     {seconds} s"
                )
            }),
            Phase::Connecting(reason) => {
                Some(format!("the NEO cluster {:?} is not there: {reason}", self.options.cluster))
            }
            Phase::Over(error) => Some(error.to_string()),
        }
    }

    /// Whether there will be no session any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(&*self.phase.lock(), Phase::Over(_))
    }

    /// Lets callers use a session.
    pub(crate) fn connected(&self, session: &Arc<Session>) {
        self.enter(Phase::Connected(Arc::clone(session)));
    }

    /// Has callers wait for the next session.
    pub(crate) fn disconnected(&self, reason: &str) {
        self.enter(Phase::Connecting(reason.into()));
    }

    /// Ends all: callers fail with this error from now on.
    pub(crate) fn end(&self, error: NeoError) {
        let session = match &*self.phase.lock() {
            Phase::Connected(session) => Some(Arc::clone(session)),
            _ => None,
        };
        self.enter(Phase::Over(error));
        if let Some(session) = session {
            session.master.end("the client was closed");
        }
        self.links.close_all("the client was closed");
        // What is in memory is not served by a client that has ended either.
        self.current.clear();
        for finish in self.commits.take_unresolved() {
            (finish.done)(Err(NeoError::Closed.into()));
        }
    }

    /// Sleeps, or until the phase changes.
    pub(crate) fn sleep(&self, time: Duration) {
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Over(_)) {
            self.changed.wait_for(&mut phase, time);
        }
    }

    fn enter(&self, next: Phase) {
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Over(_)) {
            *phase = next;
        }
        drop(phase);
        self.changed.notify_all();
    }

    /// The connection to a storage, in a session.
    pub(crate) fn storage(
        self: &Arc<Self>,
        session: &Session,
        node: NodeId,
    ) -> Result<Arc<Connection>, NeoError> {
        self.links.connection(node, || self.open_storage(session, node))
    }

    fn open_storage(
        self: &Arc<Self>,
        session: &Session,
        node: NodeId,
    ) -> Result<Arc<Connection>, NeoError> {
        let name = node.to_string();
        let stopped = || NeoError::lost(&name.as_str().into(), "the storage is not running");
        let address = self.routing.read().address(node).ok_or_else(stopped)?;
        let receiver = Arc::new(StorageReceiver { cluster: Arc::downgrade(self) });
        let opened = Connection::open((&name, Some(node)), &address, self.security(), receiver)?;
        let identified = identify(&opened, self, session, node).and_then(|()| session.check());
        if let Err(error) = identified {
            opened.end(&error.to_string());
            return Err(error);
        }
        self.routing.write().answered(node);
        debug!(%node, %address, "connected to a storage");
        Ok(opened)
    }
}

impl Receiver for StorageReceiver {
    fn notified(&self, connection: &Connection, message: Message<'_>) {
        let Some(cluster) = self.cluster.upgrade() else { return };
        match message {
            Message::NotifyDeadlock(deadlock) => {
                let Some(node) = connection.node else { return };
                let transactions = cluster.transactions.lock();
                if let Some(events) = transactions.get(&deadlock.ttid) {
                    // A transaction that has its vote does not listen any more.
                    let _ = events.send(Event::Deadlock { node, oid: deadlock.oid });
                }
            }
            other => debug!(peer = %connection.peer(), message = other.name(), "not for clients"),
        }
    }

    fn ended(&self, connection: &Connection) {
        debug!(peer = %connection.peer(), "the connection to a storage has ended");
    }
}

/// Reads the certificates.
fn tls_side(files: &TlsFiles) -> Result<TlsSide, NeoError> {
    let own = CertificateFiles {
        certificate: files.certificate.clone(),
        key: Some(files.key.clone()),
        key_password: None,
    };
    // NEO's certificates have no names in them.
    let trust = Trust::ListedUnderAnyName(files.authority.clone());
    let loaded = ClientTls::load(&ClientFiles { own: Some(own), trust });
    let loaded = loaded.map_err(|error| NeoError::Tls(Arc::new(error)))?;
    Ok(TlsSide { config: loaded.config(), name: None })
}

/// Introduces this client to a storage.
fn identify(
    connection: &Arc<Connection>,
    cluster: &Cluster,
    session: &Session,
    node: NodeId,
) -> Result<(), NeoError> {
    let request = RequestIdentification {
        node_type: NodeType::Client,
        id: Some(session.id),
        address: None,
        cluster: &cluster.options.cluster,
        id_timestamp: session.id_timestamp,
        extra: Extra::default(),
    };
    let accepted = connection.ask(request, |answer| match answer {
        Message::AcceptIdentification(accepted) => Some(accepted),
        _ => None,
    })?;
    let slow = || NeoError::lost(connection.peer(), "it did not accept this client in time");
    let accepted = accepted.wait_for(IDENTIFICATION_TIME_MAX).ok_or_else(slow)??;
    if (accepted.node_type, accepted.id) != (NodeType::Storage, Some(node)) {
        return Err(NeoError::lost(connection.peer(), "another node answers there"));
    }
    Ok(())
}
