//! The ZEO server as a whole, and its part on each worker.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use zodium_engine::{Mailbox, Notice, Storage};
use zodium_net::{Link, Service};
use zodium_tls::{AllowList, PeerIdentity};

use super::inspection::{self, Inquiry};
use super::jobs::{Blocking, RuntimeThreads};
use super::session::SessionHandle;
use super::statistics::{Statistics, Tally};
use super::subscriber::StorageSubscriber;
use crate::codec::Encoding;

/// Most undo logs that are read at once; others wait. With a filter that matches nothing each reads
/// a whole file.
const UNDO_SEARCHES_MAX: usize = 4;

/// Options of a server.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The encoding announced to clients.
    pub encoding: Encoding,
    /// Longest frame accepted, in bytes; a longer one ends its connection unread.
    pub frame_bytes_max: u32,
    /// Refuse all sessions that are not read-only.
    pub read_only: bool,
    /// Least time between two invalidations to a client that waits for no answer.
    pub notice_interval: Duration,
}

/// A storage to be served, and its options.
pub struct Offer {
    /// The running storage.
    pub storage: Arc<Storage>,
    /// The clients that may use it; absent: all that the server accepts.
    pub allow: Option<AllowList>,
}

/// The state that all workers of a server share.
pub struct Server {
    pub(crate) config: Config,
    pub(crate) storages: BTreeMap<String, ServedStorage>,
    /// When it was started, in seconds since the Unix epoch.
    pub(crate) started: u64,
    /// Channels to each worker, for inquiries about its sessions.
    pub(crate) inquiries: Mutex<Vec<mpsc::UnboundedSender<Inquiry>>>,
    /// Places for undo logs that are being read.
    pub(crate) undo_searches: Arc<Semaphore>,
}

/// A served storage.
pub(crate) struct ServedStorage {
    pub(crate) storage: Arc<Storage>,
    allow: Option<AllowList>,
    /// One for each worker.
    pub(crate) statistics: Mutex<Vec<Arc<Statistics>>>,
}

impl Server {
    /// Creates a server of storages by name (clients ask for `1` by default).
    pub fn new(config: Config, storages: BTreeMap<String, Offer>) -> Server {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let serve = |(name, Offer { storage, allow })| {
            (name, ServedStorage { storage, allow, statistics: Mutex::default() })
        };
        Server {
            config,
            storages: storages.into_iter().map(serve).collect(),
            started: since_epoch.as_secs(),
            inquiries: Mutex::default(),
            undo_searches: Arc::new(Semaphore::new(UNDO_SEARCHES_MAX)),
        }
    }
}

impl ServedStorage {
    /// Whether this client may use it.
    pub(crate) fn admits(&self, peer: Option<&PeerIdentity>) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.admits(peer))
    }
}

/// The ZEO service of one worker.
pub struct ZeoService {
    local: Rc<LocalServer>,
}

/// One worker's part of a server.
pub(crate) struct LocalServer {
    pub(crate) server: Arc<Server>,
    subscribers: BTreeMap<String, Rc<StorageSubscriber>>,
    next_session: Cell<u64>,
    /// All sessions, also those that have not registered.
    pub(crate) sessions: RefCell<BTreeMap<u64, SessionHandle>>,
    pub(crate) tally: Tally,
    pub(super) blocking: Box<dyn Blocking>,
}

impl ZeoService {
    /// Creates a service that subscribes to all storages.
    ///
    /// It must be called within a worker's runtime, whose blocking threads execute the jobs.
    pub fn new(server: Arc<Server>) -> ZeoService {
        ZeoService::with_blocking(server, Box::new(RuntimeThreads))
    }

    /// As [`ZeoService::new`], but `blocking` executes the jobs.
    pub fn with_blocking(server: Arc<Server>, blocking: Box<dyn Blocking>) -> ZeoService {
        let mut subscribers = BTreeMap::new();
        for (name, served) in &server.storages {
            let (sender, receiver) = mpsc::unbounded_channel();
            let mailbox: Arc<dyn Mailbox> = Arc::new(Sender(sender));
            let statistics = Arc::new(Statistics::default());
            served.statistics.lock().push(Arc::clone(&statistics));
            let last_seen = served.storage.subscribe(Arc::clone(&mailbox));
            let storage = Arc::clone(&served.storage);
            let notice_interval = server.config.notice_interval;
            let subscriber = StorageSubscriber::new(
                storage,
                mailbox,
                receiver,
                statistics,
                last_seen,
                notice_interval,
            );
            let subscriber = Rc::new(subscriber);
            tokio::task::spawn_local(Rc::clone(&subscriber).run());
            tokio::task::spawn_local(Rc::clone(&subscriber).send_deferred());
            subscribers.insert(name.clone(), subscriber);
        }
        let (sender, inquiries) = mpsc::unbounded_channel();
        server.inquiries.lock().push(sender);
        let local = Rc::new(LocalServer {
            server,
            subscribers,
            next_session: Cell::new(1),
            sessions: RefCell::default(),
            tally: Tally::new(),
            blocking,
        });
        tokio::task::spawn_local(inspection::answer(Rc::clone(&local), inquiries));
        ZeoService { local }
    }
}

impl LocalServer {
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
}

impl Service for ZeoService {
    type Session = SessionHandle;

    fn open(&self, link: Link) -> SessionHandle {
        let number = self.local.next_session.get();
        self.local.next_session.set(number + 1);
        let session = SessionHandle::open(Rc::clone(&self.local), link, number);
        self.local.sessions.borrow_mut().insert(number, session.clone());
        session
    }
}

/// The sending end of a subscriber's inbox, for the engine.
struct Sender(mpsc::UnboundedSender<Notice>);

impl Mailbox for Sender {
    fn post(&self, notice: Notice) {
        // A worker that has stopped has no sessions left.
        let _ = self.0.send(notice);
    }
}
