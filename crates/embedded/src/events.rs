//! What the engine tells: commits of others for the watcher, and what became of own votes.
//!
//! Key decision: the thread that announces commits calls the watcher itself, so that commits are
//! told in their order. Nothing here may wait for the storage. What could not be told does not
//! count as told, and is made up for at the next commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use zodium_client::{ClientError, LastTold, Outcome, Watcher};
use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Mailbox, Notice};
use zodium_storage::StorageError;
use zodium_transport::TICK;
use zodium_types::{Oid, Tid};

use crate::failure::of_storage;

/// Is called with the tid of an own commit, in the order of commits.
pub(crate) type Then = Box<dyn FnOnce(Tid) -> Result<(), ClientError> + Send>;

/// The events of a storage.
pub(crate) struct Events {
    watcher: Option<Arc<dyn Watcher>>,
    pub(crate) told: LastTold,
    /// Whether the last commit could not be told. Relaxed: only the thread that announces uses it.
    is_behind: AtomicBool,
    own: Mutex<FxHashMap<TransactionNumber, Arc<Own>>>,
    is_closed: AtomicBool,
}

/// A vote of this process, and what becomes of it.
#[derive(Default)]
pub(crate) struct Own {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_granted: bool,
    then: Option<Then>,
    end: Option<Result<Tid, ClientError>>,
}

impl Events {
    pub(crate) fn new(watcher: Option<Arc<dyn Watcher>>) -> Events {
        let (own, told) = (Mutex::default(), LastTold::default());
        let (is_behind, is_closed) = (AtomicBool::new(false), AtomicBool::new(false));
        Events { watcher, told, is_behind, own, is_closed }
    }

    /// What becomes of a vote. Its first event may be there already.
    pub(crate) fn own(&self, number: TransactionNumber) -> Arc<Own> {
        Arc::clone(self.own.lock().entry(number).or_default())
    }

    /// Forgets a vote.
    pub(crate) fn forget(&self, number: TransactionNumber) {
        self.own.lock().remove(&number);
    }

    /// Begins to close. A storage that is being closed fails finishes whose end it has not heard:
    /// from now on a failure does not mean that nothing is committed.
    pub(crate) fn closing(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Ends all that waits.
    pub(crate) fn close(&self) {
        let own = std::mem::take(&mut *self.own.lock());
        own.into_values().for_each(|own| own.end(Err(ClientError::Closed)));
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn committed(&self, number: TransactionNumber, tid: Tid, oids: &[Oid]) {
        let own = self.own.lock().remove(&number);
        let then = own.as_ref().and_then(|own| own.state.lock().then.take());
        let told = self.told.tell(tid, || {
            if let Some(watcher) = &self.watcher
                && self.is_behind.load(Ordering::Relaxed)
            {
                watcher.all_invalidated()?;
            }
            match (then, &self.watcher) {
                (Some(then), _) => then(tid),
                (None, Some(watcher)) => watcher.invalidated(tid, oids),
                (None, None) => Ok(()),
            }
        });
        self.is_behind.store(told.is_err(), Ordering::Relaxed);
        if let Some(own) = own {
            own.end(Ok(tid));
        }
    }

    fn failed(&self, number: TransactionNumber, error: &StorageError) {
        let own = self.own.lock().remove(&number);
        let error = if self.is_closed() { ClientError::Closed } else { of_storage(error) };
        if let Some(own) = own {
            own.end(Err(error));
        }
    }
}

impl Mailbox for Events {
    fn post(&self, notice: Notice) {
        match notice {
            Notice::Committed(commits) => commits
                .iter()
                .for_each(|commit| self.committed(commit.number, commit.tid, &commit.oids)),
            Notice::Granted(number) => self.own(number).grant(),
            Notice::Failed(number, error) => self.failed(number, &error),
            // Transactions of one process have no time limit, and sizes are asked for.
            Notice::Expired(_) | Notice::Packed => {}
        }
    }
}

impl Own {
    /// Has `then` called with the tid of the commit, before any later one is told of.
    pub(crate) fn expect(&self, then: Then) {
        self.state.lock().then = Some(then);
    }

    /// The caller no longer waits: the watcher is told of the commit instead. What has become of it
    /// meanwhile, if anything.
    pub(crate) fn leave(&self) -> Option<Result<Tid, ClientError>> {
        let mut state = self.state.lock();
        state.then = None;
        state.end.clone()
    }

    /// Waits for its locks; `check` is called at each tick, and may end the wait.
    pub(crate) fn wait_granted(
        &self,
        check: impl Fn() -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        self.wait(check, |state| match &state.end {
            Some(Err(error)) => Some(Err(error.clone())),
            _ => state.is_granted.then_some(Ok(())),
        })?
    }

    /// Waits for its end, as [`Own::wait_granted`].
    pub(crate) fn wait_end(
        &self,
        check: impl Fn() -> Result<(), ClientError>,
    ) -> Result<Result<Tid, ClientError>, ClientError> {
        self.wait(check, |state| state.end.clone())
    }

    /// Its outcome, once it is there.
    pub(crate) fn outcome(
        &self,
        check: impl Fn() -> Result<(), ClientError>,
    ) -> Result<Outcome, ClientError> {
        Ok(match self.wait_end(check)? {
            Ok(tid) => Outcome::Committed(tid),
            Err(ClientError::Closed) => Outcome::Unknown,
            Err(_) => Outcome::NotCommitted,
        })
    }

    fn wait<T>(
        &self,
        check: impl Fn() -> Result<(), ClientError>,
        done: impl Fn(&State) -> Option<T>,
    ) -> Result<T, ClientError> {
        loop {
            let mut state = self.state.lock();
            if let Some(done) = done(&state) {
                return Ok(done);
            }
            if self.changed.wait_for(&mut state, TICK).timed_out() {
                drop(state);
                check()?;
            }
        }
    }

    fn grant(&self) {
        self.state.lock().is_granted = true;
        self.changed.notify_all();
    }

    fn end(&self, end: Result<Tid, ClientError>) {
        self.state.lock().end = Some(end);
        self.changed.notify_all();
    }
}
