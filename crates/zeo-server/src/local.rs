//! One worker's part of a server: its subscribers and its sessions.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc;
use zodium_net::Blocking;
use zodium_tls::PeerIdentity;

use crate::reports::{ReportRequest, SessionReport, WorkerReport};
use crate::server::Server;
use crate::statistics::{Statistics, Tally};
use crate::subscriber::StorageSubscriber;

/// One worker's part of a server.
pub(crate) struct LocalServer {
    pub(crate) server: Arc<Server>,
    subscribers: BTreeMap<String, Rc<StorageSubscriber>>,
    next_session: Cell<u64>,
    /// All sessions, also those that have not registered.
    sessions: RefCell<BTreeMap<u64, Rc<dyn MonitoredSession>>>,
    pub(crate) tally: Rc<Tally>,
    pub(crate) blocking: Rc<dyn Blocking>,
}

/// A session as the monitor sees it.
pub(crate) trait MonitoredSession {
    fn describe(&self) -> SessionReport;

    /// Whether it has a transaction; such sessions are described first.
    fn has_transaction(&self) -> bool;
}

impl LocalServer {
    /// Makes subscribers of all storages. It must be called within a worker's runtime.
    pub(crate) fn start(server: Arc<Server>, blocking: Rc<dyn Blocking>) -> Rc<LocalServer> {
        let mut subscribers = BTreeMap::new();
        for (name, served) in &server.storages {
            let statistics = Arc::new(Statistics::default());
            served.statistics.lock().push(Arc::clone(&statistics));
            let storage = Arc::clone(&served.storage);
            let notice_interval = server.config.notice_interval;
            let subscriber =
                StorageSubscriber::new(storage, statistics, notice_interval, &blocking);
            let subscriber = Rc::new(subscriber);
            tokio::task::spawn_local(Rc::clone(&subscriber).run());
            tokio::task::spawn_local(Rc::clone(&subscriber).send_deferred());
            subscribers.insert(name.clone(), subscriber);
        }
        let (sender, requests) = mpsc::unbounded_channel();
        server.report_requests.lock().push(sender);
        let local = Rc::new(LocalServer {
            server,
            subscribers,
            next_session: Cell::new(1),
            sessions: RefCell::default(),
            tally: Rc::new(Tally::new()),
            blocking,
        });
        tokio::task::spawn_local(answer(Rc::clone(&local), requests));
        local
    }

    /// The subscriber of a storage; `None` if there is no such storage, or this client may not use
    /// it.
    pub(crate) fn subscriber(
        &self,
        name: &str,
        peer: Option<&PeerIdentity>,
    ) -> Option<&Rc<StorageSubscriber>> {
        self.server.storages.get(name).filter(|served| served.admits(peer))?;
        self.subscribers.get(name)
    }

    /// Gives a new session its number.
    pub(crate) fn next_session(&self) -> u64 {
        let number = self.next_session.get();
        self.next_session.set(number + 1);
        number
    }

    pub(crate) fn add(&self, number: u64, session: Rc<dyn MonitoredSession>) {
        self.sessions.borrow_mut().insert(number, session);
    }

    pub(crate) fn remove(&self, number: u64) {
        self.sessions.borrow_mut().remove(&number);
    }

    fn report(&self, listed_max: usize) -> WorkerReport {
        let sessions = self.sessions.borrow();
        let (mut busy, mut idle) = (Vec::new(), Vec::new());
        for session in sessions.values() {
            let list = if session.has_transaction() { &mut busy } else { &mut idle };
            if list.len() < listed_max {
                list.push(session.describe());
            }
        }
        busy.extend(idle);
        busy.truncate(listed_max);
        WorkerReport { connections: sessions.len(), sessions: busy }
    }
}

/// Answers requests for reports of one worker, until the server is dropped.
async fn answer(local: Rc<LocalServer>, mut requests: mpsc::UnboundedReceiver<ReportRequest>) {
    while let Some((listed_max, answer)) = requests.recv().await {
        // The receiver may be gone; ignore the error.
        let _ = answer.send(local.report(listed_max));
    }
}
