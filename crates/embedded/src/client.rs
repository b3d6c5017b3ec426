//! The client: loads, calls, and the state of its storage.

use std::sync::Arc;
use std::time::Duration;

use zodium_client::{
    ClientError, CurrentObject, Interrupt, Outcome, Revision, Unfinished, Watcher,
};
use zodium_disk::SystemClock;
use zodium_engine::{Config, Database, Mailbox, Resolver};
use zodium_pickle::Value;
use zodium_storage::{Access, Load, Storage, StorageError, WriteState};
use zodium_types::{Oid, Tid};

use crate::events::Events;
use crate::failure::{of_exception, of_storage};

/// How to use a storage.
#[derive(Default)]
pub struct EmbeddedOptions {
    /// Is told of the commits of others.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// Tells waiting threads when to stop waiting.
    pub interrupt: Option<Arc<dyn Interrupt>>,
    /// Resolves conflicts, and merges undos with later changes.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// How long a finish waits for a storage that was lost meanwhile.
    pub wait: Duration,
}

/// A storage of this process, used as one on a server.
pub struct EmbeddedClient {
    pub(crate) shared: Arc<Shared>,
}

/// What the client shares with its transactions.
pub(crate) struct Shared {
    pub(crate) database: Arc<Database>,
    pub(crate) events: Arc<Events>,
    pub(crate) mailbox: Arc<dyn Mailbox>,
    pub(crate) interrupt: Option<Arc<dyn Interrupt>>,
    pub(crate) wait: Duration,
}

impl EmbeddedClient {
    /// Uses an open storage. Its commits are told of from now on.
    ///
    /// # Errors
    /// When the storage cannot be read, or there is no thread for its log.
    pub fn start(
        storage: Arc<dyn Storage>,
        options: EmbeddedOptions,
    ) -> Result<EmbeddedClient, ClientError> {
        let EmbeddedOptions { watcher, interrupt, resolver, wait } = options;
        let config = Config { resolver, pack_keep_old: false, ..Config::default() };
        let database = Database::start(storage, Arc::new(SystemClock::new()), &config);
        let database = database.map_err(|error| of_storage(&error))?;
        let events = Arc::new(Events::new(watcher));
        let mailbox: Arc<dyn Mailbox> = Arc::<Events>::clone(&events);
        let last_tid = database.subscribers().add(Arc::clone(&mailbox));
        events.told.advance(last_tid);
        Ok(EmbeddedClient {
            shared: Arc::new(Shared { database, events, mailbox, interrupt, wait }),
        })
    }

    /// What a server would answer to `get_info`.
    ///
    /// # Errors
    /// As [`EmbeddedClient::call`].
    pub fn info(&self) -> Result<Value<'static>, ClientError> {
        self.call("get_info", Vec::new())
    }

    /// Fails if the client is closed, for callers that use the storage beside it.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub fn check_open(&self) -> Result<(), ClientError> {
        self.shared.check_open()
    }

    /// Whether the storage can be used now.
    pub fn is_connected(&self) -> bool {
        self.shared.is_connected()
    }

    /// Whether commits are refused.
    pub fn is_read_only(&self) -> bool {
        self.shared.database.reader().is_read_only()
    }

    /// The last transaction that the watcher was told of. Waits while the watcher is being told of
    /// another one, except in the watcher.
    pub fn last_tid(&self) -> Tid {
        self.shared.events.told.wait()
    }

    /// Like [`EmbeddedClient::last_tid`], but `None` instead of waiting.
    pub fn last_tid_at_once(&self) -> Option<Tid> {
        self.shared.events.told.at_once()
    }

    /// Loads from memory, as [`EmbeddedClient::load_before`]. Does not wait. `None` once the client
    /// is closed: it hears of no further commits.
    pub fn load_cached(&self, oid: Oid, before: Tid) -> Option<Revision> {
        self.shared.check_open().ok()?;
        match self.shared.database.reader().load_before(oid, before, Access::NonBlocking) {
            Ok(Load::Revision(found)) => Some(revision(found)),
            _ => None,
        }
    }

    /// Loads the newest revision of an object written before transaction `before`; `None` if the
    /// object did not exist yet. Fails with [`ClientError::NoObject`] if it does not exist or is
    /// deleted. Blocking.
    pub fn load_before(&self, oid: Oid, before: Tid) -> Result<Option<Revision>, ClientError> {
        self.shared.check_open()?;
        loaded(oid, self.shared.database.reader().load_before(oid, before, Access::Blocking))
    }

    /// The first object from an oid on, by default of all.
    ///
    /// # Errors
    /// As the server's `record_iternext`.
    pub fn next_object(&self, from: Option<Oid>) -> Result<CurrentObject, ClientError> {
        let from = from.map_or(Value::None, Value::from);
        CurrentObject::from_answer(self.call("record_iternext", vec![from])?)
    }

    /// An oid for a new object. Blocking if other programs write to the storage.
    ///
    /// # Errors
    /// When the storage cannot be reached, or is read-only.
    pub fn new_oid(&self) -> Result<Oid, ClientError> {
        if self.is_read_only() {
            return Err(ClientError::ReadOnly);
        }
        self.shared.check_interrupt()?;
        let oids = self.shared.database.new_oids(1);
        let none = || ClientError::Disconnected("the storage gave no new oid".into());
        oids.map(|oids| Oid(*oids.start())).ok_or_else(none)
    }

    /// Answers a method of a server that reads or packs. Blocking.
    ///
    /// # Errors
    /// The exception that the server would raise.
    pub fn call(
        &self,
        method: &str,
        arguments: Vec<Value<'_>>,
    ) -> Result<Value<'static>, ClientError> {
        let answer = zodium_zeo_server::answer(&self.shared.database, method, arguments);
        answer.map_err(of_exception)
    }

    /// Waits until the watcher was told of all that is committed by now. Blocking.
    ///
    /// # Errors
    /// When the storage cannot be reached.
    pub fn sync(&self) -> Result<(), ClientError> {
        self.shared.database.catch_up().map_err(|error| of_storage(&error))
    }

    /// Finds out the outcome of a transaction whose finish was not waited for. Waits until it is
    /// there.
    ///
    /// # Errors
    /// When the wait is interrupted.
    pub fn outcome(&self, transaction: &Unfinished) -> Result<Outcome, ClientError> {
        transaction.ask().unwrap_or(Ok(Outcome::Unknown))
    }

    /// Ends the use of the storage. Open transactions fail.
    pub fn close(&self) {
        self.shared.events.closing();
        // What it could not save at the end is logged by the storage.
        let _ = self.shared.database.close();
        // Only now: what is committed until then is told to its callers.
        self.shared.database.subscribers().remove(&self.shared.mailbox);
        self.shared.events.close();
    }
}

impl Shared {
    /// Fails if the client is closed.
    pub(crate) fn check_open(&self) -> Result<(), ClientError> {
        if self.events.is_closed() { Err(ClientError::Closed) } else { Ok(()) }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.database.write_state() != WriteState::Failed
    }

    /// Fails if the calling thread has to stop waiting.
    pub(crate) fn check_interrupt(&self) -> Result<(), ClientError> {
        let interrupt = self.interrupt.as_ref().filter(|interrupt| interrupt.may_stop());
        match interrupt.is_some_and(|interrupt| interrupt.stops()) {
            true => Err(ClientError::Interrupted),
            false => Ok(()),
        }
    }
}

/// What a blocking load of a storage means for a caller of [`EmbeddedClient::load_before`].
///
/// # Errors
/// As there.
pub fn loaded(
    oid: Oid,
    answer: Result<Load, StorageError>,
) -> Result<Option<Revision>, ClientError> {
    match answer {
        Ok(Load::Revision(found)) => Ok(Some(revision(found))),
        Ok(Load::NoRevision) => Ok(None),
        // Blocking reads never return `WouldBlock`.
        Ok(Load::Missing | Load::WouldBlock) => Err(ClientError::NoObject(oid)),
        Err(error) => Err(of_storage(&error)),
    }
}

fn revision(found: zodium_storage::Revision) -> Revision {
    let zodium_storage::Revision { data, serial, end, .. } = found;
    Revision { data, serial, end }
}
