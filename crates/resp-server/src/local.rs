//! What the connections of one worker share, and letters that come for them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashMap;
use zodium_keyspace::Reader;
use zodium_net::{CloseReason, Inbox};

use crate::Server;
use crate::batch::Batch;
use crate::client::{Client, Wait};
use crate::commands::Command;
use crate::fail::Fail;
use crate::publishing::Publication;
use crate::reply::Reply;
use crate::statistics::WorkerStatistics;
use crate::tracking::Invalidation;
use crate::waiting::Waiter;
use crate::worker_clock::WorkerClock;

/// A worker's connections.
pub(crate) struct LocalServer {
    pub(crate) server: Arc<Server>,
    pub(crate) number: usize,
    /// Reads strings beside other workers.
    pub(crate) reader: Reader,
    /// The time of what is being executed.
    pub(crate) clock: WorkerClock,
    clients: RefCell<FxHashMap<u64, Rc<Client>>>,
    /// Letters that come; `None` if another service of this worker has them.
    inbox: Option<Inbox<Letter>>,
    /// For the requests that a client has sent at once; `None` while it is in use.
    pub(crate) batch: Cell<Option<Box<Batch>>>,
    /// Clients whose answers wait for the log.
    pub(crate) held: RefCell<Vec<u64>>,
}

/// What a worker is told about its clients. Those that have gone meanwhile are skipped.
pub(crate) enum Letter {
    /// The answer to a command that waited.
    Served { client: u64, answer: Bytes, position: u64 },
    /// A published message.
    Published { clients: Vec<u64>, publication: Arc<Publication> },
    /// A command that was executed, for clients that monitor.
    Monitored { line: Arc<str> },
    /// The log has got further, or has failed.
    Logged,
    /// Clients that were paused go on.
    PauseEnded,
    /// A client is to be disconnected.
    Kill { client: u64 },
    /// Keys have changed that a client may have in a cache.
    Invalidated(Invalidation),
    /// The client that gets the invalidations of this one has gone.
    RedirectBroken { client: u64 },
    /// A client does not wait any longer: its command was taken from those that wait.
    Unblocked { client: u64, is_error: bool },
}

impl LocalServer {
    /// Starts the task that takes letters. Must be called within the worker's runtime.
    pub(crate) fn start(server: Arc<Server>, number: usize) -> Rc<LocalServer> {
        let inbox = server.clients.take_inbox(number);
        let reader = server.keyspace.reader();
        let local = Rc::new(LocalServer {
            server,
            inbox,
            number,
            reader,
            clock: WorkerClock::new(),
            clients: RefCell::default(),
            batch: Cell::default(),
            held: RefCell::default(),
        });
        if local.inbox.is_none() {
            tracing::error!(number, "a worker has two RESP services, its clients get no messages");
            return local;
        }
        let receiving = Rc::clone(&local);
        tokio::task::spawn_local(async move {
            while let Some(inbox) = &receiving.inbox {
                let letter = inbox.next().await;
                receiving.receive(letter);
            }
        });
        local
    }

    /// Takes the letters that are there. So a client that learns of a change on another connection
    /// gets its invalidation before its next answer.
    pub(crate) fn take_letters(&self) {
        while let Some(letter) = self.inbox.as_ref().and_then(Inbox::take) {
            self.receive(letter);
        }
    }

    pub(crate) fn enter(&self, client: &Rc<Client>) {
        self.clients.borrow_mut().insert(client.id(), Rc::clone(client));
    }

    pub(crate) fn remove(&self, client: u64) {
        self.clients.borrow_mut().remove(&client);
    }

    /// Counts a command.
    pub(crate) fn count_command(&self) {
        // Only this worker writes, so that no update is lost.
        self.statistics(|WorkerStatistics { commands, .. }| {
            commands.store(commands.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        });
    }

    /// Counts a call of a command of the connection, and executes it.
    pub(crate) fn counted<T>(
        &self,
        command: &'static Command,
        run: impl FnOnce() -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        let Some(counters) = self.server.statistics.workers.get(self.number) else { return run() };
        let begun = counters.begin(command);
        let outcome = run();
        counters.end(&begun, outcome.is_err());
        outcome
    }

    /// Gives access to the counters of this worker.
    pub(crate) fn statistics(&self, count: impl FnOnce(&WorkerStatistics)) {
        self.server.statistics.workers.get(self.number).map(count);
    }

    /// Visits all clients of the worker.
    pub(crate) fn each_client(&self, visit: impl FnMut(&Rc<Client>)) {
        self.clients.borrow().values().for_each(visit);
    }

    pub(crate) fn client(&self, id: u64) -> Option<Rc<Client>> {
        self.clients.borrow().get(&id).cloned()
    }

    fn receive(&self, letter: Letter) {
        match letter {
            Letter::Served { client, answer, position } => {
                self.end_wait(client, &answer, position);
            }
            Letter::Logged => self.release(),
            Letter::PauseEnded => self.end_pause(),
            Letter::Published { clients, publication } => {
                for client in clients.iter().filter_map(|id| self.client(*id)) {
                    publication.deliver(&self.server.beside, &client);
                }
            }
            Letter::Monitored { line } => {
                let clients = self.clients.borrow();
                for client in clients.values().filter(|client| client.is_monitor.get()) {
                    client.push(|reply| reply.simple(&line));
                }
            }
            Letter::Kill { client } => {
                if let Some(client) = self.client(client) {
                    client.link.cut(CloseReason::Done);
                }
            }
            Letter::Invalidated(invalidation) => self.invalidate(invalidation),
            Letter::RedirectBroken { client } => {
                if let Some(client) = self.client(client) {
                    client.note_broken_redirect();
                }
            }
            Letter::Unblocked { client, is_error } => self.end_wait_in_vain(client, is_error),
        }
    }

    /// Has a client wait, for so many seconds or for ever.
    pub(crate) fn begin_wait(self: &Rc<Self>, client: &Rc<Client>, waiter: Arc<Waiter>, time: f64) {
        client.shared.facts.lock().is_blocked = true;
        // Not the rounded time, which is 0 for the shortest ones.
        let time = (time != 0.0).then(|| Duration::try_from_secs_f64(time).ok()).flatten();
        let timer = time.map(|time| {
            // The request is freed when the wait ends, however long the time is.
            let (local, client, waiter) = (Rc::clone(self), client.id(), Arc::downgrade(&waiter));
            let task = tokio::task::spawn_local(async move {
                tokio::time::sleep(time).await;
                let Some(waiter) = waiter.upgrade() else { return };
                if local.server.waiting.leave(&waiter) {
                    local.end_wait_in_vain(client, false);
                }
            });
            task.abort_handle()
        });
        *client.wait.borrow_mut() = Some(Wait { waiter, timer });
    }

    /// Answers a client whose command has waited without a result. It has left those that wait, so
    /// this client sends no other command before the answer.
    fn end_wait_in_vain(&self, client: u64, is_error: bool) {
        let Some(client) = self.client(client) else { return };
        let mut buffer = BytesMut::new();
        let mut reply = Reply::to_buffer(&mut buffer, client.version.get());
        match is_error {
            true => {
                reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
            }
            false => reply.null_array(),
        }
        self.end_wait(client.id(), &buffer, 0);
    }

    fn end_wait(&self, client: u64, answer: &[u8], position: u64) {
        let Some(client) = self.client(client) else { return };
        client.wait.borrow_mut().take();
        client.shared.facts.lock().is_blocked = false;
        client.answer_late(answer);
        self.note_position(&client, position);
        self.hold_back(&client);
        client.link.wake();
    }
}
