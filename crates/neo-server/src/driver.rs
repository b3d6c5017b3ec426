//! The node with its connections: hands events in, and does what comes out.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use zodium_neo::{ConnectionId, Packet};
use zodium_neo_storage::{DatabaseError, Exit, Node, Output};
use zodium_net::{Inbox, Limits, LinkMetrics};

use crate::known_masters::{KnownMasters, MastersTold};
use crate::links::{Events, Links};
use crate::pace::Pace;
use crate::reader::{Reader, ShortRead};
use crate::tls::NodeTls;
use crate::watch::{NodeReport, Notes, Question};
use crate::writer::{Done, Writer};

/// What others are told of the node.
pub(crate) struct Observers {
    pub(crate) notes: Notes,
    pub(crate) links: Arc<LinkMetrics>,
    pub(crate) masters_told: Option<MastersTold>,
}

/// The node with its connections. All of it is on one thread.
pub(crate) struct Driver {
    /// Itself, for tasks.
    this: Weak<Driver>,
    pub(crate) node: RefCell<Node>,
    pub(crate) links: Rc<Links>,
    pub(crate) reader: Reader,
    pub(crate) pace: Pace,
    pub(crate) writer: RefCell<Option<Writer>>,
    notes: Notes,
    masters: KnownMasters,
    ending: RefCell<Option<Result<Exit, DatabaseError>>>,
    pub(crate) ends: Notify,
}

impl Driver {
    pub(crate) fn new(
        node: Node,
        tls: Option<Arc<NodeTls>>,
        reader: Reader,
        writer: Writer,
        observers: Observers,
    ) -> Rc<Driver> {
        let Observers { notes, links, masters_told } = observers;
        let masters = KnownMasters::new(masters_told, node.masters().to_vec());
        // A storage notifies clients of deadlocks only, and paces what it reads for answers.
        let limits = Limits { push_bytes_max: usize::MAX, ..Limits::default() };
        Rc::new_cyclic(|this: &Weak<Driver>| {
            let events: Weak<dyn Events> = this.clone();
            Driver {
                this: this.clone(),
                node: RefCell::new(node),
                links: Links::new(events, tls, links, limits),
                reader,
                pace: Pace::default(),
                writer: RefCell::new(Some(writer)),
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
        self.masters.observe(node.masters());
    }

    /// Answers what other threads ask of the node.
    pub(crate) async fn answer(self: Rc<Driver>, mut questions: UnboundedReceiver<Question>) {
        while let Some(question) = questions.recv().await {
            let unsent_bytes = self.links.unsent_bytes();
            let status = self.node.borrow().status();
            // The asking thread may have given up.
            let _ = question.send(NodeReport { status, unsent_bytes });
        }
    }

    fn apply_one(self: &Rc<Driver>, output: Output) {
        match output {
            Output::Link(task) => {
                if let Some(over) = self.links.apply(task) {
                    self.node.borrow_mut().closed(over);
                }
            }
            Output::Read { job, after_sending } => self.read_elsewhere(job, after_sending),
            Output::Write { job, is_durable } => {
                if let Some(writer) = self.writer.borrow().as_ref() {
                    writer.push(job, is_durable);
                }
            }
            Output::Exit(exit) => self.end(Ok(exit)),
        }
    }
}

impl Events for Driver {
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
        if let Some(driver) = self.this.upgrade() {
            driver.apply();
        }
    }

    fn lost(&self, connection: ConnectionId) {
        self.node.borrow_mut().closed(connection);
        self.handled();
    }
}
