//! The node with its connections: hands events in, and does what comes out.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::AbortHandle;
use zodium_neo::{Address, Packet};
use zodium_neo_storage::{ConnectionId, DatabaseError, Exit, Node, Output};
use zodium_net::{CloseReason, Host, Inbox, Keepalive, Limits, Link, LinkMetrics};

use crate::pace::Pace;
use crate::reader::{Reader, ShortRead};
use crate::session::{Connections, Sessions};
use crate::tls::NodeTls;
use crate::watch::{NodeReport, Notes, Question};
use crate::writer::{Done, Writer};

/// NEO's keepalive: a peer that has vanished is noticed after a minute and a half.
pub(crate) const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 3 };

/// Told the masters that the node knows, when they change.
pub type MastersTold = Box<dyn Fn(&[Address])>;

/// What others are told of the node.
pub(crate) struct Observers {
    pub(crate) notes: Notes,
    pub(crate) links: Arc<LinkMetrics>,
    pub(crate) masters_told: Option<MastersTold>,
}

/// Packets from this length on are sent without a copy.
const PUSHED_BYTES_MIN: usize = 16 << 10;

/// The node with its connections. All of it is on one thread.
pub(crate) struct Driver {
    /// Itself, for tasks.
    this: Weak<Driver>,
    pub(crate) node: RefCell<Node>,
    pub(crate) links: RefCell<FxHashMap<ConnectionId, Link>>,
    /// Connections that are being made.
    pub(crate) dialling: RefCell<FxHashMap<ConnectionId, AbortHandle>>,
    /// The connection whose session is opened next, if the node knows it.
    pub(crate) opening: Cell<Option<ConnectionId>>,
    pub(crate) tls: Option<NodeTls>,
    pub(crate) limits: Limits,
    pub(crate) reader: Reader,
    pub(crate) pace: Pace,
    pub(crate) writer: RefCell<Option<Writer>>,
    pub(crate) host: Host<Sessions>,
    notes: Notes,
    /// Told when other masters are known, and those that were told last.
    masters: Option<(MastersTold, RefCell<Vec<Address>>)>,
    ending: RefCell<Option<Result<Exit, DatabaseError>>>,
    pub(crate) ends: Notify,
}

impl Driver {
    pub(crate) fn new(
        node: Node,
        tls: Option<NodeTls>,
        limits: Limits,
        reader: Reader,
        writer: Writer,
        observers: Observers,
    ) -> Rc<Driver> {
        let Observers { notes, links, masters_told } = observers;
        let masters = masters_told.map(|told| (told, RefCell::new(node.masters().to_vec())));
        Rc::new_cyclic(|this: &Weak<Driver>| {
            let connections: Weak<dyn Connections> = this.clone();
            Driver {
                this: this.clone(),
                node: RefCell::new(node),
                links: RefCell::default(),
                dialling: RefCell::default(),
                opening: Cell::new(None),
                tls,
                limits,
                reader,
                pace: Pace::default(),
                writer: RefCell::new(Some(writer)),
                host: Host::new(Sessions::new(connections), links, None),
                notes,
                masters,
                ending: RefCell::default(),
                ends: Notify::new(),
            }
        })
    }

    /// Begins.
    pub(crate) fn start(self: &Rc<Driver>) {
        self.node.borrow_mut().start();
        self.apply();
    }

    /// A connection has ended, or was not made.
    pub(crate) fn lost(self: &Rc<Driver>, connection: ConnectionId) {
        self.links.borrow_mut().remove(&connection);
        self.dialling.borrow_mut().remove(&connection);
        self.node.borrow_mut().closed(connection);
        self.apply();
    }

    /// Jobs are done.
    pub(crate) fn done(self: &Rc<Driver>, done: Done) {
        match done {
            Ok(completions) => {
                let mut node = self.node.borrow_mut();
                completions.into_iter().for_each(|completion| node.completed(completion));
                drop(node);
                self.apply();
            }
            Err(error) => self.end(Err(error)),
        }
    }

    /// Takes what the database has done.
    pub(crate) async fn take_done(self: Rc<Driver>, inbox: Inbox<Done>) {
        loop {
            self.done(inbox.next().await);
        }
    }

    /// Why the node ends, when [`Driver::ends`] has been notified.
    pub(crate) fn take_ending(&self) -> Option<Result<Exit, DatabaseError>> {
        self.ending.borrow_mut().take()
    }

    pub(crate) fn end(&self, ending: Result<Exit, DatabaseError>) {
        self.ending.borrow_mut().get_or_insert(ending);
        self.ends.notify_one();
    }

    /// Does what the node asks for.
    pub(crate) fn apply(self: &Rc<Driver>) {
        let mut reads = VecDeque::new();
        self.apply_outputs(&mut reads);
        if !reads.is_empty() {
            self.read(reads);
        }
        self.observe();
    }

    /// Does what the node asks for but short reads, which are added to `reads`.
    pub(crate) fn apply_outputs(self: &Rc<Driver>, reads: &mut VecDeque<ShortRead>) {
        loop {
            let outputs = self.node.borrow_mut().take_outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Read { job, after_sending } if job.is_short() => {
                        reads.push_back((job, after_sending));
                    }
                    other => self.apply_one(other),
                }
            }
        }
    }

    /// Tells observers what has changed.
    fn observe(&self) {
        let node = self.node.borrow();
        self.notes.take(&node);
        if let Some((told, known)) = &self.masters
            && known.borrow()[..] != *node.masters()
        {
            *known.borrow_mut() = node.masters().to_vec();
            told(node.masters());
        }
    }

    /// Answers what other threads ask of the node.
    pub(crate) async fn answer(self: Rc<Driver>, mut questions: UnboundedReceiver<Question>) {
        while let Some(question) = questions.recv().await {
            let links = self.links.borrow();
            let unsent_bytes = links.values().map(|link| link.output().len() as u64).sum();
            let status = self.node.borrow().status();
            // The asking thread may have given up.
            let _ = question.send(NodeReport { status, unsent_bytes });
        }
    }

    fn apply_one(self: &Rc<Driver>, output: Output) {
        match output {
            Output::Dial { connection, address, after } => self.dial(connection, address, after),
            Output::Send { connection, packet } => {
                if let Some(link) = self.links.borrow().get(&connection) {
                    match packet.len() {
                        PUSHED_BYTES_MIN.. => link.output().push(packet),
                        _ => link.output().buffer().extend_from_slice(&packet),
                    }
                    link.wake();
                }
            }
            Output::Close { connection } => self.close(connection),
            Output::Read { job, after_sending } => self.read_elsewhere(job, after_sending),
            Output::Write { job, is_durable } => {
                if let Some(writer) = self.writer.borrow().as_ref() {
                    writer.push(job, is_durable);
                }
            }
            Output::Exit(exit) => self.end(Ok(exit)),
        }
    }

    fn close(self: &Rc<Driver>, connection: ConnectionId) {
        if let Some(dialling) = self.dialling.borrow_mut().remove(&connection) {
            dialling.abort();
            return self.node.borrow_mut().closed(connection);
        }
        if let Some(link) = self.links.borrow().get(&connection) {
            link.close(CloseReason::Done);
        }
    }
}

impl Connections for Driver {
    fn opened(&self, link: &Link) -> ConnectionId {
        let known = self.opening.take();
        let connection = match known {
            Some(connection) => connection,
            None => self.node.borrow_mut().accepted(link.peer().to_owned()),
        };
        self.links.borrow_mut().insert(connection, link.clone());
        if known.is_some() {
            self.node.borrow_mut().connected(connection);
            self.handled();
        }
        connection
    }

    fn received(&self, connection: ConnectionId, packet: Packet<'_>) {
        self.node.borrow_mut().received(connection, packet);
    }

    fn handled(&self) {
        if let Some(driver) = self.this.upgrade() {
            driver.apply();
        }
    }

    fn closed(&self, connection: ConnectionId) {
        if let Some(driver) = self.this.upgrade() {
            driver.lost(connection);
        }
    }
}
