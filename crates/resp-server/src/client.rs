//! What the server knows of a connection.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use zodium_keyspace::{Watcher, Word};
use zodium_net::Link;
use zodium_resp::{OwnedRequest, Version};
use zodium_types::Held;

use crate::reply::Reply;
use crate::tracked::Tracked;
use crate::{Command, Waiter};

/// A connection, as its worker knows it.
pub(crate) struct Client {
    pub(crate) link: Link,
    pub(crate) shared: Arc<ClientShared>,
    /// The last command, as it is in `shared` too: to look there costs a lock.
    pub(crate) command: Cell<&'static str>,
    pub(crate) version: Cell<Version>,
    pub(crate) database: Cell<usize>,
    pub(crate) is_authenticated: Cell<bool>,
    /// Commands that wait for `EXEC`; `None` outside of a transaction.
    pub(crate) queue: RefCell<Option<Queue>>,
    pub(crate) watch: RefCell<Option<Watch>>,
    pub(crate) subscriptions: RefCell<Subscriptions>,
    /// The number of the last commit that it was told of, and its bytes that its link has counted.
    pub(crate) told: Cell<(u64, usize)>,
    /// What it waits for. Meanwhile no commands are taken.
    pub(crate) wait: RefCell<Option<Wait>>,
    /// A job reads an object for it. Meanwhile no commands are taken.
    pub(crate) is_loading: Cell<bool>,
    /// The position of the log that its answers wait for; 0 for none.
    pub(crate) log_position: Cell<u64>,
    /// They wait. Meanwhile no commands are taken.
    pub(crate) is_held: Cell<bool>,
    /// `CLIENT PAUSE` has stopped it. Meanwhile no commands are taken.
    pub(crate) is_paused: Cell<bool>,
    /// Its last command has taken more memory than there is. Until keys have gone no commands are
    /// taken.
    pub(crate) is_over: Cell<bool>,
    pub(crate) replies: Cell<Replies>,
    pub(crate) is_monitor: Cell<bool>,
    /// Whether its reads do not count as uses: `CLIENT NO-TOUCH`.
    pub(crate) keeps_uses: Cell<bool>,
    /// How it is told of changes, for a cache of its own; `None` if it is not.
    pub(crate) tracked: RefCell<Option<Tracked>>,
    /// `CLIENT CACHING` came before this command or transaction.
    pub(crate) is_caching: Cell<bool>,
    /// Bytes that were to be sent when `timeout` was last looked at.
    pub(crate) unsent: Cell<usize>,
}

/// What other workers may know of a connection.
pub(crate) struct ClientShared {
    pub(crate) id: u64,
    pub(crate) peer: String,
    pub(crate) worker: AtomicUsize,
    pub(crate) connected_at: u64,
    /// Times in milliseconds since 1970.
    pub(crate) used_at: AtomicU64,
    pub(crate) is_killed: AtomicBool,
    /// Whether it gets the invalidations of another client. Then it stays with its worker.
    pub(crate) is_target: AtomicBool,
    pub(crate) facts: Mutex<Facts>,
}

/// What `CLIENT LIST` shows, and changes seldom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) library_name: String,
    pub(crate) library_version: String,
    pub(crate) command: &'static str,
    pub(crate) database: usize,
    pub(crate) version: Version,
    pub(crate) subscriptions: usize,
    pub(crate) patterns: usize,
    /// Number of queued commands, or -1 outside of a transaction.
    pub(crate) queued: i64,
    pub(crate) watched: usize,
    pub(crate) is_blocked: bool,
    pub(crate) is_monitor: bool,
    pub(crate) no_evict: bool,
    pub(crate) no_touch: bool,
    /// The client that gets its invalidations, 0 for itself; `None` if keys are not tracked.
    pub(crate) redirect: Option<u64>,
    pub(crate) is_broadcast: bool,
    /// Whether the client that gets its invalidations has gone.
    pub(crate) is_broken: bool,
}

/// Commands of a transaction.
pub(crate) struct Queue {
    pub(crate) requests: Vec<(&'static Command, OwnedRequest)>,
    /// Bytes of the requests.
    pub(crate) bytes: usize,
    /// The same, for the memory of all clients.
    pub(crate) held: Held,
    /// A command was refused, so that `EXEC` does nothing.
    pub(crate) is_broken: bool,
}

/// What a client waits for.
pub(crate) struct Wait {
    pub(crate) waiter: Arc<Waiter>,
    /// The task that ends the wait, if it has an end.
    pub(crate) timer: Option<AbortHandle>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
    }
}

/// Keys that a client watches.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) watcher: Watcher,
    /// Databases and keys.
    pub(crate) keys: BTreeSet<(usize, Word)>,
}

/// Channels and patterns of a client.
#[derive(Default)]
pub(crate) struct Subscriptions {
    pub(crate) channels: BTreeSet<Word>,
    pub(crate) patterns: BTreeSet<Word>,
}

impl Subscriptions {
    pub(crate) fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }
}

/// Which answers a client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    Off,
    /// None to the next command.
    SkipNext,
    /// None to this command.
    Skip,
}

/// A connection on its way to another worker.
pub(crate) struct MovedClient {
    pub(crate) shared: Arc<ClientShared>,
    version: Version,
    database: usize,
    is_authenticated: bool,
    replies: Replies,
    keeps_uses: bool,
}

impl Client {
    pub(crate) fn new(link: Link, shared: Arc<ClientShared>, is_authenticated: bool) -> Client {
        Client {
            link,
            shared,
            command: Cell::default(),
            version: Cell::default(),
            database: Cell::default(),
            is_authenticated: Cell::new(is_authenticated),
            queue: RefCell::default(),
            watch: RefCell::default(),
            subscriptions: RefCell::default(),
            told: Cell::default(),
            wait: RefCell::default(),
            is_loading: Cell::default(),
            log_position: Cell::default(),
            is_held: Cell::default(),
            is_paused: Cell::default(),
            is_over: Cell::default(),
            replies: Cell::default(),
            is_monitor: Cell::default(),
            keeps_uses: Cell::default(),
            unsent: Cell::default(),
            tracked: RefCell::default(),
            is_caching: Cell::default(),
        }
    }

    pub(crate) fn resume(link: Link, moved: MovedClient) -> Client {
        let client = Client::new(link, moved.shared, moved.is_authenticated);
        client.version.set(moved.version);
        client.database.set(moved.database);
        client.replies.set(moved.replies);
        client.keeps_uses.set(moved.keeps_uses);
        client
    }

    /// What moves to another worker; `None` while others know that the client is here.
    pub(crate) fn moved(&self) -> Option<MovedClient> {
        let stays = self.is_blocked()
            || self.queue.borrow().is_some()
            || self.watch.borrow().is_some()
            || self.subscriptions.borrow().count() > 0
            || self.is_monitor.get()
            || self.is_told();
        (!stays).then(|| MovedClient {
            shared: Arc::clone(&self.shared),
            version: self.version.get(),
            database: self.database.get(),
            is_authenticated: self.is_authenticated.get(),
            replies: self.replies.get(),
            keeps_uses: self.keeps_uses.get(),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.shared.id
    }

    /// Whether it is told of changes of keys, for itself or for another client.
    pub(crate) fn is_told(&self) -> bool {
        self.tracked.borrow().is_some() || self.shared.is_target.load(Ordering::Relaxed)
    }

    pub(crate) fn is_blocked(&self) -> bool {
        let waits = self.wait.borrow().is_some() || self.is_over.get();
        waits || self.is_loading.get() || self.is_held.get() || self.is_paused.get()
    }

    /// Notes that its command is executed, though the answer may come later.
    pub(crate) fn end_skip(&self) {
        let is_answered = self.wait.borrow().is_none() && !self.is_loading.get();
        if is_answered && self.replies.get() == Replies::Skip {
            self.replies.set(Replies::On);
        }
    }

    /// Appends the answer of a command that has waited, if the client wants it.
    pub(crate) fn answer_late(&self, answer: &[u8]) {
        if self.replies.get() == Replies::On {
            self.link.output().buffer().extend_from_slice(answer);
        }
        self.end_skip();
    }

    /// Notes the command that it has sent.
    pub(crate) fn note_command(&self, command: &Command) {
        if !std::ptr::eq(self.command.get(), command.full_name) {
            self.command.set(command.full_name);
            self.shared.facts.lock().command = command.full_name;
        }
    }

    /// Whether RESP2 restricts the commands that it may send.
    pub(crate) fn is_restricted(&self) -> bool {
        self.version.get() == Version::Two && self.subscriptions.borrow().count() > 0
    }

    /// Sends a message that answers no request.
    pub(crate) fn push(&self, write: impl FnOnce(&mut Reply)) {
        self.link.note_push(self.append(write));
        self.link.wake();
    }

    /// Appends a message to the output; returns its length.
    pub(crate) fn append(&self, write: impl FnOnce(&mut Reply)) -> usize {
        let mut output = self.link.output();
        let before = output.len();
        write(&mut Reply::to_link(&mut output, self.version.get()));
        output.len() - before
    }

    /// Speaks another version, from the reply on that is being written.
    pub(crate) fn set_version(&self, reply: &mut Reply, version: Version) {
        self.version.set(version);
        self.shared.facts.lock().version = version;
        reply.version = version;
    }

    pub(crate) fn select(&self, database: usize) {
        self.database.set(database);
        self.shared.facts.lock().database = database;
    }
}

impl ClientShared {
    pub(crate) fn new(id: u64, peer: &str, worker: usize, now: u64) -> ClientShared {
        ClientShared {
            id,
            peer: peer.to_owned(),
            worker: AtomicUsize::new(worker),
            connected_at: now,
            used_at: AtomicU64::new(now),
            is_killed: AtomicBool::default(),
            is_target: AtomicBool::default(),
            facts: Mutex::new(Facts { queued: -1, ..Facts::default() }),
        }
    }

    /// A line of `CLIENT LIST`, without its end.
    pub(crate) fn line(&self, now: u64) -> String {
        let facts = self.facts.lock().clone();
        let seconds = |since: u64| now.saturating_sub(since) / 1000;
        format!(
            "id={} addr={} laddr= fd=0 name={} age={} idle={} flags={} db={} sub={} psub={} \
             ssub=0 multi={} watch={} cmd={} user=default redir={} resp={} lib-name={} lib-ver={}",
            self.id,
            self.peer,
            facts.name,
            seconds(self.connected_at),
            seconds(self.used_at.load(Ordering::Relaxed)),
            facts.flags(),
            facts.database,
            facts.subscriptions,
            facts.patterns,
            facts.queued,
            facts.watched,
            if facts.command.is_empty() { "NULL" } else { facts.command },
            facts.redirect.map_or("-1".to_owned(), |redirect| redirect.to_string()),
            if facts.version == Version::Two { 2 } else { 3 },
            facts.library_name,
            facts.library_version,
        )
    }
}

impl Facts {
    fn flags(&self) -> String {
        let flags = [
            (self.is_monitor, 'O'),
            (self.is_blocked, 'b'),
            (self.queued >= 0, 'x'),
            (self.subscriptions + self.patterns > 0, 'P'),
            (self.redirect.is_some(), 't'),
            (self.is_broken, 'R'),
            (self.is_broadcast, 'B'),
            (self.no_evict, 'e'),
            (self.no_touch, 'T'),
        ];
        let set: String = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, f)| *f).collect();
        if set.is_empty() { "N".to_owned() } else { set }
    }
}
