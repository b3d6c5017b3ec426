//! What became of a transaction whose finish was not answered.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::connection::Connection;
use crate::promise::Promise;
use crate::{Client, ClientError};

/// Objects that are remembered to find out whether a transaction was committed.
const EVIDENCE_MAX: usize = 16;

/// A transaction of which it is not known whether it was committed.
#[derive(Clone, Debug)]
pub struct Unfinished {
    evidence: Evidence,
    awaited: Option<Awaited>,
}

/// Whether a transaction was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was, as this one.
    Committed(Tid),
    /// It was not, when it was asked. A server that was still at it when the connection was lost
    /// may take a moment to finish.
    NotCommitted,
    /// Nothing that it wrote can be told from what others write: it stored no objects, or the
    /// server made others of them.
    Unknown,
}

/// What a transaction stored: the object, the serial that it was stored upon, the data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence(Vec<(Oid, Tid, Bytes)>);

/// An answer that may still come.
#[derive(Clone)]
struct Awaited {
    connection: Arc<Connection>,
    promise: Arc<Promise<Value<'static>>>,
}

impl Unfinished {
    /// Its connection is lost.
    pub(crate) fn lost(evidence: Evidence) -> Unfinished {
        Unfinished { evidence, awaited: None }
    }

    /// Nobody waits for the answer.
    pub(crate) fn left(
        evidence: Evidence,
        connection: Arc<Connection>,
        promise: Arc<Promise<Value<'static>>>,
    ) -> Unfinished {
        Unfinished { evidence, awaited: Some(Awaited { connection, promise }) }
    }
}

impl Evidence {
    /// An object was stored, and what was stored for it before does not count.
    pub(crate) fn add(&mut self, oid: Oid, upon: Tid, data: Bytes) {
        self.remove(oid);
        if self.0.len() < EVIDENCE_MAX {
            self.0.push((oid, upon, data));
        }
    }

    /// The server makes something else of this object.
    pub(crate) fn remove(&mut self, oid: Oid) {
        self.0.retain(|(known, ..)| *known != oid);
    }
}

impl Client {
    /// Whether a transaction was committed whose finish got no answer.
    ///
    /// It waits for an answer that may still come. Without, it looks for the very data that were
    /// stored.
    pub fn outcome(&self, transaction: &Unfinished) -> Result<Outcome, ClientError> {
        if let Some(answer) = transaction.awaited.as_ref().map(Awaited::answer).transpose()? {
            match answer {
                Ok(tid) => return Ok(tid.as_tid().map_or(Outcome::Unknown, Outcome::Committed)),
                Err(ClientError::Disconnected(_) | ClientError::Closed) => {}
                Err(_) => return Ok(Outcome::NotCommitted),
            }
        }
        let Evidence(evidence) = &transaction.evidence;
        let Some((oid, upon, data)) = evidence.first() else { return Ok(Outcome::Unknown) };
        let mut before = Tid::MAX;
        loop {
            let revision = match self.load_before(*oid, before) {
                Ok(Some(revision)) if revision.serial > *upon => revision,
                Ok(_) | Err(ClientError::NoObject(_)) => return Ok(Outcome::NotCommitted),
                Err(error) => return Err(error),
            };
            before = revision.serial;
            if revision.data == *data && self.has_written(revision.serial, evidence)? {
                return Ok(Outcome::Committed(revision.serial));
            }
        }
    }

    fn has_written(&self, tid: Tid, evidence: &[(Oid, Tid, Bytes)]) -> Result<bool, ClientError> {
        for (oid, _, data) in evidence {
            match self.load_serial(*oid, tid) {
                Ok(found) if found == data[..] => {}
                Ok(_) | Err(ClientError::Raised(_)) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Awaited {
    /// What the server said in the end; an error of the outer kind: the caller is to stop waiting.
    fn answer(&self) -> Result<Result<Value<'static>, ClientError>, ClientError> {
        self.connection.wait(&self.promise)?;
        let lost = || Err(ClientError::disconnected("it was not answered"));
        Ok(self.promise.answer().unwrap_or_else(lost))
    }
}

impl fmt::Debug for Awaited {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Awaited").finish_non_exhaustive()
    }
}
