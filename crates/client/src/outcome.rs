//! Finds out the outcome of a transaction whose finish was not answered.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::connection::Connection;
use crate::promise::Promise;
use crate::{Client, ClientError};

/// Number of stored objects that are remembered to find out the outcome.
const SENT_STORES_MAX: usize = 16;

/// A transaction whose outcome is unknown.
#[derive(Clone, Debug)]
pub struct Unfinished {
    stores: SentStores,
    awaited: Option<Awaited>,
    elsewhere: Option<Elsewhere>,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was committed with this tid.
    Committed(Tid),
    /// It was not committed when the server was asked. A server that was still working on it when
    /// the connection was lost may commit a moment later.
    NotCommitted,
    /// There is nothing to tell its writes from those of others: it stored no objects, the server
    /// changed their data, or a pack or a deletion has removed what was there since.
    Unknown,
}

/// The stores of a transaction: object, base serial, data.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentStores(Vec<(Oid, Tid, Bytes)>);

/// A function that knows the outcome.
#[derive(Clone)]
struct Elsewhere(Arc<dyn Fn() -> Result<Outcome, ClientError> + Send + Sync>);

/// A reply that may still arrive.
#[derive(Clone)]
struct Awaited {
    connection: Arc<Connection>,
    promise: Arc<Promise<Value<'static>>>,
}

impl Unfinished {
    /// The connection was lost.
    pub(crate) fn lost(stores: SentStores) -> Unfinished {
        Unfinished { stores, awaited: None, elsewhere: None }
    }

    /// The caller stopped waiting for the reply.
    pub(crate) fn left(
        stores: SentStores,
        connection: Arc<Connection>,
        promise: Arc<Promise<Value<'static>>>,
    ) -> Unfinished {
        let awaited = Some(Awaited { connection, promise });
        Unfinished { stores, awaited, elsewhere: None }
    }

    /// A transaction of a storage without a server, which `ask` knows the outcome of.
    pub fn elsewhere(
        ask: impl Fn() -> Result<Outcome, ClientError> + Send + Sync + 'static,
    ) -> Unfinished {
        let (stores, elsewhere) = (SentStores::default(), Some(Elsewhere(Arc::new(ask))));
        Unfinished { stores, awaited: None, elsewhere }
    }

    /// The outcome, if it is known [elsewhere](Unfinished::elsewhere).
    pub fn ask(&self) -> Option<Result<Outcome, ClientError>> {
        self.elsewhere.as_ref().map(|Elsewhere(ask)| ask())
    }
}

impl SentStores {
    /// Records a store; it replaces an earlier one of the same object.
    pub(crate) fn add(&mut self, oid: Oid, upon: Tid, data: Bytes) {
        self.remove(oid);
        if self.0.len() < SENT_STORES_MAX {
            self.0.push((oid, upon, data));
        }
    }

    /// Drops an object whose data the server has changed.
    pub(crate) fn remove(&mut self, oid: Oid) {
        self.0.retain(|(known, ..)| *known != oid);
    }
}

impl Client {
    /// Finds out whether a transaction was committed whose finish got no reply.
    ///
    /// Waits for a reply that may still arrive. Without one, it looks for the stored data.
    pub fn outcome(&self, transaction: &Unfinished) -> Result<Outcome, ClientError> {
        if let Some(answer) = transaction.awaited.as_ref().map(Awaited::answer).transpose()? {
            match answer {
                Ok(tid) => return Ok(tid.as_tid().map_or(Outcome::Unknown, Outcome::Committed)),
                Err(ClientError::Disconnected(_) | ClientError::Closed) => {}
                Err(_) => return Ok(Outcome::NotCommitted),
            }
        }
        let SentStores(stores) = &transaction.stores;
        if stores.is_empty() {
            return Ok(Outcome::Unknown);
        }
        // The cache may not have heard of the commit: the connection was lost with the answer.
        self.sync()?;
        for store in stores {
            match self.outcome_by(store, stores)? {
                Outcome::Unknown => {}
                known => return Ok(known),
            }
        }
        // Missing new objects mean that nothing was committed. But if an older object tells
        // nothing, there was a pack or a deletion, which may have removed the new ones too.
        match stores.iter().all(|(_, upon, _)| *upon == Tid::ZERO) && !self.has_any(stores)? {
            true => Ok(Outcome::NotCommitted),
            false => Ok(Outcome::Unknown),
        }
    }

    /// Looks for a transaction in the history of one of the objects that it stored. Only a history
    /// that reaches back to the base is whole: a pack removes older revisions, a deletion hides
    /// them.
    fn outcome_by(
        &self,
        (oid, upon, data): &(Oid, Tid, Bytes),
        stores: &[(Oid, Tid, Bytes)],
    ) -> Result<Outcome, ClientError> {
        let mut before = Tid::MAX;
        loop {
            let revision = match self.load_before(*oid, before) {
                Ok(Some(revision)) if revision.serial > *upon => revision,
                Ok(Some(revision)) if revision.serial == *upon => return Ok(Outcome::NotCommitted),
                Ok(_) | Err(ClientError::NoObject(_)) => return Ok(Outcome::Unknown),
                Err(error) => return Err(error),
            };
            before = revision.serial;
            if revision.data == *data && self.has_written(revision.serial, stores)? {
                return Ok(Outcome::Committed(revision.serial));
            }
        }
    }

    /// Whether one of the objects is there, or is deleted and not packed away.
    fn has_any(&self, stores: &[(Oid, Tid, Bytes)]) -> Result<bool, ClientError> {
        for (oid, ..) in stores {
            // Before all transactions no object has a revision, but only a missing one is an error.
            match self.load_before(*oid, Tid::ZERO.next()) {
                Err(ClientError::NoObject(_)) => {}
                found => return found.map(|_| true),
            }
        }
        Ok(false)
    }

    fn has_written(&self, tid: Tid, stores: &[(Oid, Tid, Bytes)]) -> Result<bool, ClientError> {
        for (oid, _, data) in stores {
            match self.load_serial(*oid, tid) {
                Ok(found) if found == data[..] => {}
                Ok(_) | Err(ClientError::NoObject(_) | ClientError::Raised(_)) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Awaited {
    /// The server's final reply. The outer error means that the caller has to stop waiting.
    fn answer(&self) -> Result<Result<Value<'static>, ClientError>, ClientError> {
        self.connection.wait(&self.promise)?;
        let lost = || Err(ClientError::disconnected("it was not answered"));
        Ok(self.promise.answer().unwrap_or_else(lost))
    }
}

impl fmt::Debug for Elsewhere {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Elsewhere").finish_non_exhaustive()
    }
}

impl fmt::Debug for Awaited {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Awaited").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_store_of_an_object_counts_unless_the_server_has_changed_it() {
        let mut stores = SentStores::default();
        let store = |oid: u64, data| (Oid(oid), Tid(oid), Bytes::from_static(data));
        for (oid, upon, data) in [store(1, b"one"), store(2, b"two"), store(1, b"one again")] {
            stores.add(oid, upon, data);
        }
        assert_eq!(stores.0, [store(2, b"two"), store(1, b"one again")]);
        stores.remove(Oid(2));
        assert_eq!(stores.0, [store(1, b"one again")]);
        (2..100).for_each(|oid| stores.add(Oid(oid), Tid(oid), Bytes::new()));
        assert_eq!(stores.0.len(), 16, "more are not needed to know the transaction by");
    }
}
