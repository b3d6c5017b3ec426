//! A NEO cluster.
//!
//! Key decision: the cluster is opened at the first use. So a forked child, which cannot use its
//! parent's connections, connects when it needs to.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::Mutex;
use zodium_client::{
    ClientError, CommittedRecord, CurrentObject, Interrupt, Outcome, Revision, TransactionHead,
    TransactionOptions, Unfinished, Voted, Watcher,
};
use zodium_embedded::{EmbeddedClient, EmbeddedLog, EmbeddedOptions, EmbeddedTransaction, loaded};
use zodium_engine::Resolver;
use zodium_neo_client::{NeoError, NeoStorage, Options};
use zodium_pickle::Value;
use zodium_storage::Read;
use zodium_types::{Oid, Tid};

use super::{Backend, Loads, Log, OpenTransaction, Then};

/// Attempts to get the lock of a cluster that another thread opens or closes. A thread that a fork
/// has not copied may hold it for ever.
const LOCK_TIME_MAX: Duration = Duration::from_secs(60);

/// A NEO cluster, open or not yet.
pub(crate) struct NeoBackend {
    options: Options,
    watcher: Arc<dyn Watcher>,
    interrupt: Arc<dyn Interrupt>,
    resolver: Arc<dyn Resolver>,
    opened: ArcSwapOption<Opened>,
    /// Held by the thread that opens it; whether it was closed. Replaced in a forked child.
    opening: ArcSwapOption<Mutex<bool>>,
}

/// An open cluster.
struct Opened {
    client: EmbeddedClient,
    storage: Arc<NeoStorage>,
}

impl NeoBackend {
    /// A cluster that is not open yet.
    pub(crate) fn new(
        options: Options,
        watcher: Arc<dyn Watcher>,
        interrupt: Arc<dyn Interrupt>,
        resolver: Arc<dyn Resolver>,
    ) -> NeoBackend {
        let opening = ArcSwapOption::from_pointee(Mutex::new(false));
        let opened = ArcSwapOption::empty();
        NeoBackend { options, watcher, interrupt, resolver, opened, opening }
    }

    /// The open cluster; opens it if need be.
    fn opened(&self) -> Result<Arc<Opened>, ClientError> {
        match self.opened.load_full() {
            Some(opened) => Ok(opened),
            None => self.open(),
        }
    }

    fn open(&self) -> Result<Arc<Opened>, ClientError> {
        let opening = self.opening.load_full().ok_or(ClientError::Closed)?;
        let busy = || ClientError::Disconnected("another thread opens the NEO cluster".into());
        let is_closed = opening.try_lock_for(LOCK_TIME_MAX).ok_or_else(busy)?;
        if *is_closed {
            return Err(ClientError::Closed);
        }
        // Another thread may have been faster.
        if let Some(opened) = self.opened.load_full() {
            return Ok(opened);
        }
        let storage =
            NeoStorage::open_with(self.options.clone(), Some(Arc::clone(&self.interrupt)));
        let storage = Arc::new(storage.map_err(|error| unreachable(&self.options, &error))?);
        let options = EmbeddedOptions {
            watcher: Some(Arc::clone(&self.watcher)),
            interrupt: Some(Arc::clone(&self.interrupt)),
            resolver: Some(Arc::clone(&self.resolver)),
            wait: self.options.wait,
        };
        let client = EmbeddedClient::start(Arc::<NeoStorage>::clone(&storage), options)?;
        let told = client.info().and_then(|info| self.watcher.connected(&info));
        if let Err(error) = told {
            // It is not kept, and its threads would go on.
            client.close();
            return Err(error);
        }
        let opened = Arc::new(Opened { client, storage });
        self.opened.store(Some(Arc::clone(&opened)));
        Ok(opened)
    }
}

/// The error of a cluster that could not be opened.
fn unreachable(options: &Options, error: &NeoError) -> ClientError {
    match error {
        NeoError::Interrupted => ClientError::Interrupted,
        NeoError::Tls(_) | NeoError::Thread { .. } => {
            ClientError::Options(error.to_string().into())
        }
        NeoError::NoPrimary { reason, .. } => ClientError::Unreachable {
            waited_seconds: options.wait.as_secs_f64(),
            reason: Arc::clone(reason),
        },
        error => ClientError::Disconnected(error.to_string().into()),
    }
}

impl Backend for NeoBackend {
    fn wait(&self) -> Result<(), ClientError> {
        self.opened().map(drop)
    }

    fn close(&self) {
        let Some(opening) = self.opening.load_full() else { return };
        let Some(mut is_closed) = opening.try_lock_for(LOCK_TIME_MAX) else { return };
        *is_closed = true;
        // It stays, so that later calls say that it was closed.
        if let Some(opened) = &*self.opened.load() {
            opened.client.close();
        }
    }

    fn after_fork_in_child(&self) -> Result<(), ClientError> {
        // The parent's threads do not exist here: nothing of theirs is used, nor freed.
        std::mem::forget(self.opened.swap(None));
        std::mem::forget(self.opening.swap(Some(Arc::new(Mutex::new(false)))));
        Ok(())
    }

    fn is_connected(&self) -> bool {
        self.opened.load().as_ref().is_some_and(|opened| opened.client.is_connected())
    }

    fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    fn clear_cache(&self) {
        if let Some(opened) = &*self.opened.load() {
            opened.storage.clear_cache();
        }
    }

    fn last_tid(&self) -> Result<Tid, ClientError> {
        Ok(self.opened()?.client.last_tid())
    }

    fn last_tid_at_once(&self) -> Option<Tid> {
        self.opened.load().as_ref()?.client.last_tid_at_once()
    }

    fn load_cached(&self, oid: Oid, before: Tid) -> Option<Revision> {
        self.opened.load().as_ref()?.client.load_cached(oid, before)
    }

    fn load_uncached(&self, oid: Oid, before: Tid) -> Result<Option<Revision>, ClientError> {
        self.opened()?.client.load_before(oid, before)
    }

    fn prefetch(&self, oids: &[Oid], before: Tid) {
        if let Some(opened) = &*self.opened.load() {
            opened.storage.prefetch(oids, before);
        }
    }

    fn load_many(&self, oids: &[Oid], before: Tid) -> Result<Loads, ClientError> {
        let opened = self.opened()?;
        opened.client.check_open()?;
        let asked: Vec<_> = oids.iter().map(|oid| (*oid, before)).collect();
        let answers = opened.storage.load_many_before(&asked);
        Ok(oids.iter().zip(answers).map(|(oid, answer)| loaded(*oid, answer)).collect())
    }

    fn next_object(&self, from: Option<Oid>) -> Result<CurrentObject, ClientError> {
        self.opened()?.client.next_object(from)
    }

    fn read_log(&self, start: Option<Tid>, stop: Option<Tid>) -> Result<Box<dyn Log>, ClientError> {
        Ok(Box::new(self.opened()?.client.read_log(start, stop)?))
    }

    fn new_oid(&self) -> Result<Oid, ClientError> {
        self.opened()?.client.new_oid()
    }

    fn outcome(&self, unfinished: &Unfinished) -> Result<Outcome, ClientError> {
        self.opened()?.client.outcome(unfinished)
    }

    fn call(&self, method: &str, arguments: Value<'_>) -> Result<Value<'static>, ClientError> {
        let opened = self.opened()?;
        match method {
            "ping" => opened.client.sync().map(|()| Value::None),
            method => opened.client.call(method, arguments.into_sequence().unwrap_or_default()),
        }
    }

    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn OpenTransaction>, ClientError> {
        Ok(Box::new(self.opened()?.client.begin(options)?))
    }
}

impl Log for EmbeddedLog {
    fn number(&self) -> i128 {
        -1
    }

    fn next_transaction(&mut self) -> Result<Option<TransactionHead>, ClientError> {
        EmbeddedLog::next_transaction(self)
    }

    fn next_records(&mut self, count: usize) -> Result<Vec<CommittedRecord>, ClientError> {
        EmbeddedLog::next_records(self, count)
    }

    fn position(&self) -> Option<(Tid, usize)> {
        EmbeddedLog::position(self)
    }
}

impl OpenTransaction for EmbeddedTransaction {
    fn store(&mut self, oid: Oid, serial: Tid, data: Bytes) -> Result<(), ClientError> {
        EmbeddedTransaction::store(self, oid, serial, data)
    }

    fn delete(&mut self, oid: Oid, serial: Tid) -> Result<(), ClientError> {
        EmbeddedTransaction::delete(self, oid, serial);
        Ok(())
    }

    fn check_current(&mut self, oid: Oid, serial: Tid) -> Result<(), ClientError> {
        EmbeddedTransaction::check_current(self, oid, serial);
        Ok(())
    }

    fn undo(&mut self, undo_id: &[u8]) -> Result<(), ClientError> {
        EmbeddedTransaction::undo(self, undo_id)
    }

    fn restore(
        &mut self,
        oid: Oid,
        serial: Tid,
        data: Option<&[u8]>,
        previous: Option<Tid>,
    ) -> Result<(), ClientError> {
        let data = data.map(Bytes::copy_from_slice);
        EmbeddedTransaction::restore(self, oid, serial, data, previous);
        Ok(())
    }

    fn vote(&mut self) -> Result<Voted, ClientError> {
        EmbeddedTransaction::vote(self)
    }

    fn finish(self: Box<Self>, then: Then) -> Result<Tid, ClientError> {
        EmbeddedTransaction::finish(*self, then)
    }

    fn abort(self: Box<Self>) -> Result<(), ClientError> {
        EmbeddedTransaction::abort(*self);
        Ok(())
    }
}
