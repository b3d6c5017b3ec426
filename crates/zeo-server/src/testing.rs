//! A storage in memory and a client's link, for tests of the parts of a session.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use zodium_disk::SystemClock;
use zodium_engine::{Config, Storage};
use zodium_memorystorage::MemoryStorage;
use zodium_net::{CloseReason, Consumed, Host, Limits, Link, Service, Session};
use zodium_zeo::codec::Encoding;

use crate::jobs::{Blocking, Jobs};
use crate::local::Sender;
use crate::peer::Peer;
use crate::replies::Replies;
use crate::statistics::{Statistics, Tally};
use crate::subscriber::StorageSubscriber;

/// A new storage in memory.
pub(crate) fn storage() -> Arc<Storage> {
    let kept = Arc::new(MemoryStorage::new());
    Storage::start(kept, Arc::new(SystemClock::new()), &Config::default()).unwrap()
}

/// Runs a test within a worker's runtime.
pub(crate) fn run_local(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

/// Lets all other tasks of the worker run.
pub(crate) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Jobs that run when a test says so.
#[derive(Clone, Default)]
pub(crate) struct Queued(Rc<RefCell<VecDeque<Job>>>);

impl Queued {
    /// Runs the next job; false if there is none.
    pub(crate) fn run_next(&self) -> bool {
        let job = self.0.borrow_mut().pop_front();
        job.map(|job| job()).is_some()
    }
}

impl Blocking for Queued {
    fn run(&self, job: Job) {
        self.0.borrow_mut().push_back(job);
    }
}

/// A registered client.
pub(crate) struct Client {
    pub(crate) peer: Rc<Peer>,
    pub(crate) blocking: Queued,
    /// The other end of its connection.
    _stream: DuplexStream,
}

impl Client {
    /// Connects a client to a storage.
    pub(crate) async fn connect(storage: Arc<Storage>) -> Client {
        let (link, stream) = connect().await;
        let (sender, inbox) = mpsc::unbounded_channel();
        let mailbox = Arc::new(Sender(sender));
        let last_seen = storage.subscribe(Arc::<Sender>::clone(&mailbox));
        let statistics = Arc::<Statistics>::default();
        let subscriber = Rc::new(StorageSubscriber::new(
            storage,
            mailbox,
            inbox,
            Arc::clone(&statistics),
            last_seen,
            Duration::ZERO,
        ));
        let blocking = Queued::default();
        let gone = Arc::default();
        let jobs =
            Jobs::new(link.clone(), Rc::new(blocking.clone()), Box::new(|| ()), Arc::clone(&gone));
        let replies = Replies::new(link, Encoding::Pickle, Some(statistics), gone);
        let tally = Rc::new(Tally::new());
        let peer = Rc::new(Peer { subscriber, replies, jobs, tally, session: 1 });
        Client { peer, blocking, _stream: stream }
    }
}

/// A link, and the other end of its stream.
async fn connect() -> (Link, DuplexStream) {
    let (stream, other) = tokio::io::duplex(1 << 20);
    let opened = Rc::<RefCell<Option<Link>>>::default();
    let host = Host::new(Opened(Rc::clone(&opened)), Arc::default(), None);
    tokio::task::spawn_local(async move {
        host.run(stream, "a client", None, Limits::default()).await;
    });
    settle().await;
    let link = opened.take().unwrap();
    (link, other)
}

/// Keeps the link of a session that does nothing.
struct Opened(Rc<RefCell<Option<Link>>>);

struct Nothing;

impl Service for Opened {
    type Session = Nothing;

    fn open(&self, link: Link) -> Nothing {
        self.0.replace(Some(link));
        Nothing
    }
}

impl Session for Nothing {
    fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
        Ok(Consumed::Bytes(bytes.len()))
    }

    fn received_large(&mut self, _frame: Bytes) -> Result<(), CloseReason> {
        Ok(())
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn is_established(&self) -> bool {
        true
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn closed(&mut self) {}
}
