//! Reads: each asks a storage that serves the partition, and another one if that fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use zodium_neo::messages::{
    AnswerObject, AskFinalTID, AskOIDsFrom, AskObject, AskObjectHistory, AskTIDs, AskTIDsFrom,
    AskTransactionInformation, HistoryRecord,
};
use zodium_neo::{Checksum, ErrorCode, Message, NodeId, Partition, StoredData};
use zodium_storage::Committed;
use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::NeoError;
use crate::cluster::Cluster;
use crate::connection::Connection;
use crate::promise::Promise;
use crate::routing::Routing;
use crate::session::Session;

/// A storage that takes longer is taken for dead. It delays reads of objects that are being
/// committed, which takes less.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// Interval between attempts while no storage serves a partition.
const RETRY: Duration = Duration::from_millis(50);
/// Transactions that are listed at once.
const LISTED: u32 = 1000;

/// Reads of a cluster.
pub(crate) struct Reads<'c> {
    pub(crate) cluster: &'c Arc<Cluster>,
    /// Reads in this session only; otherwise in whichever there is.
    session: Option<&'c Arc<Session>>,
}

/// The answer to a load.
#[derive(Debug)]
pub(crate) enum Loaded {
    Found(Record),
    /// The object has other revisions only.
    NotThen,
    /// There is no such object.
    Never,
}

/// A revision of an object.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) serial: Tid,
    /// The serial of the next one; `None` when this one is current.
    pub(crate) next: Option<Tid>,
    /// `None` for a deletion.
    pub(crate) data: Option<Bytes>,
    /// Of an undo: the transaction that stored the data.
    pub(crate) data_serial: Option<Tid>,
}

/// A transaction without its records.
#[derive(Debug)]
pub(crate) struct TransactionInformation {
    pub(crate) metadata: TransactionMetadata,
    /// Whether records of it may have been packed.
    pub(crate) is_packed: bool,
    pub(crate) oids: Vec<Oid>,
}

/// An [`AnswerObject`] whose data were not verified yet.
pub(crate) struct Unverified {
    serial: Tid,
    next: Option<Tid>,
    stored: StoredData,
    data_serial: Option<Tid>,
}

impl<'c> Reads<'c> {
    /// Reads in whichever session there is.
    pub(crate) fn new(cluster: &'c Arc<Cluster>) -> Reads<'c> {
        Reads { cluster, session: None }
    }

    /// Reads in a session that callers do not use yet.
    pub(crate) fn in_session(cluster: &'c Arc<Cluster>, session: &'c Arc<Session>) -> Reads<'c> {
        Reads { cluster, session: Some(session) }
    }

    /// Number of partitions.
    pub(crate) fn partitions(&self) -> Result<u32, NeoError> {
        self.session(self.cluster.deadline())?;
        Ok(self.cluster.routing.read().partitions())
    }

    /// The record of an object at a serial, or the last one before a transaction.
    pub(crate) fn load(
        &self,
        oid: Oid,
        at: Option<Tid>,
        before: Option<Tid>,
    ) -> Result<Loaded, NeoError> {
        let loaded = self.of_oid(oid, |connection| {
            let asked = connection.ask(AskObject { oid, at, before }, Unverified::of)?;
            answer(connection, asked)?.verify_for(oid, connection)
        });
        loaded_of(loaded)
    }

    /// The serials of the newest revisions of an object, newest first; none if there is none.
    pub(crate) fn history(&self, oid: Oid, count: i64) -> Result<Vec<HistoryRecord>, NeoError> {
        let found = self.of_oid(oid, |connection| {
            let asked = AskObjectHistory { oid, first: 0, end: count };
            answer(
                connection,
                connection.ask(asked, |message| match message {
                    Message::AnswerObjectHistory(history) => Some(history.records),
                    _ => None,
                })?,
            )
        });
        match found {
            Err(error)
                if matches!(
                    error.code(),
                    Some(ErrorCode::OidNotFound | ErrorCode::OidDoesNotExist)
                ) =>
            {
                Ok(Vec::new())
            }
            found => found,
        }
    }

    /// A transaction; `None` if there is none of that tid.
    pub(crate) fn transaction(&self, tid: Tid) -> Result<Option<TransactionInformation>, NeoError> {
        let found = self.ask(
            |routing| routing.of_tid(tid),
            tid.0,
            |connection| {
                let asked = AskTransactionInformation { tid };
                answer(
                    connection,
                    connection.ask(asked, |message| match message {
                        Message::AnswerTransactionInformation(found) => {
                            Some(TransactionInformation {
                                metadata: TransactionMetadata {
                                    user: found.user.to_vec(),
                                    description: found.description.to_vec(),
                                    extension: found.extension.to_vec(),
                                },
                                is_packed: found.packed,
                                oids: found.oids,
                            })
                        }
                        _ => None,
                    })?,
                )
            },
        );
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.code() == Some(ErrorCode::TidNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The tids of a partition in a range, both ends included, ascending.
    pub(crate) fn tids(
        &self,
        partition: Partition,
        (min_tid, max_tid): (Tid, Tid),
        length: u32,
    ) -> Result<Vec<Tid>, NeoError> {
        self.ask(
            |_| Some(partition),
            partition.0.into(),
            |connection| {
                let asked = AskTIDsFrom { min_tid, max_tid, length, partition };
                answer(
                    connection,
                    connection.ask(asked, |message| match message {
                        Message::AnswerTIDsFrom(answer) => Some(answer.tids),
                        _ => None,
                    })?,
                )
            },
        )
    }

    /// Whether there is a transaction of that tid.
    pub(crate) fn has_transaction(&self, tid: Tid) -> Result<bool, NeoError> {
        let partition = self.cluster.routing.read().of_tid(tid);
        Ok(match partition {
            Some(partition) => !self.tids(partition, (tid, tid), 1)?.is_empty(),
            None => false,
        })
    }

    /// The newest tids of a partition but the first `skip`, newest first.
    pub(crate) fn newest(
        &self,
        partition: Partition,
        skip: i64,
        count: i64,
    ) -> Result<Vec<Tid>, NeoError> {
        self.ask(
            |_| Some(partition),
            partition.0.into(),
            |connection| {
                let asked = AskTIDs { first: skip, end: skip + count, partition };
                answer(
                    connection,
                    connection.ask(asked, |message| match message {
                        Message::AnswerTIDs(answer) => Some(answer.tids),
                        _ => None,
                    })?,
                )
            },
        )
    }

    /// The objects of a partition from one on, ascending, as of the last transaction; deleted ones
    /// are left out.
    pub(crate) fn oids(
        &self,
        partition: Partition,
        min_oid: Oid,
        length: u32,
    ) -> Result<Vec<Oid>, NeoError> {
        let tid = self.cluster.commits.last_tid();
        self.ask(
            |_| Some(partition),
            partition.0.into(),
            |connection| {
                let asked = AskOIDsFrom { partition, length, min_oid, tid };
                answer(
                    connection,
                    connection.ask(asked, |message| match message {
                        Message::AnswerOIDsFrom(answer) => Some(answer.oids),
                        _ => None,
                    })?,
                )
            },
        )
    }

    /// The tid of a transaction that was being committed; `None` if it was not.
    pub(crate) fn final_tid(&self, ttid: Tid) -> Result<Option<Tid>, NeoError> {
        self.ask(
            |routing| routing.of_tid(ttid),
            ttid.0,
            |connection| {
                answer(
                    connection,
                    connection.ask(AskFinalTID { ttid }, |message| match message {
                        Message::AnswerFinalTID(answer) => Some(answer.tid),
                        _ => None,
                    })?,
                )
            },
        )
    }

    /// The transactions of a range, both ends included, with their objects, oldest first.
    pub(crate) fn committed(&self, first: Tid, last: Tid) -> Result<Vec<Committed>, NeoError> {
        let mut tids = Vec::new();
        for partition in (0..self.partitions()?).map(Partition) {
            let mut from = first;
            while from <= last {
                let found = self.tids(partition, (from, last), LISTED)?;
                let is_full = found.len() >= LISTED as usize;
                from = found.last().filter(|_| is_full).map_or(Tid::MAX, |tid| tid.next());
                tids.extend(found);
            }
        }
        tids.sort_unstable();
        let committed = tids.into_iter().map(|tid| {
            let found = self.transaction(tid)?;
            Ok(Committed { tid, oids: found.map_or_else(Vec::new, |found| found.oids) })
        });
        committed.collect()
    }

    fn of_oid<T>(
        &self,
        oid: Oid,
        attempt: impl Fn(&Arc<Connection>) -> Result<T, NeoError>,
    ) -> Result<T, NeoError> {
        let spread = self.cluster.routing.read().spread_of(oid);
        self.ask(|routing| routing.of_oid(oid), spread, attempt)
    }

    /// Asks storages until one answers, or the time is over.
    fn ask<T>(
        &self,
        place: impl Fn(&Routing) -> Option<Partition>,
        spread: u64,
        attempt: impl Fn(&Arc<Connection>) -> Result<T, NeoError>,
    ) -> Result<T, NeoError> {
        let deadline = self.cluster.deadline();
        loop {
            let session = self.session(deadline)?;
            let (nodes, partition) = {
                let routing = self.cluster.routing.read();
                let partition = place(&routing).unwrap_or(Partition(0));
                (routing.readable(partition, spread, Instant::now()), partition)
            };
            let failed = match self.ask_one_of(&session, &nodes, &attempt) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failed)) => failed,
                Err(error) => return Err(error),
            };
            if Instant::now() >= deadline {
                let reason = match failed {
                    Some(damaged @ NeoError::Damaged { .. }) => return Err(damaged),
                    Some(error) => error.to_string(),
                    None => "none with a readable cell is running".to_owned(),
                };
                return Err(NeoError::NoCell { partition, reason: reason.into() });
            }
            if let Some(damaged @ NeoError::Damaged { .. }) = failed {
                // All replicas were asked.
                return Err(damaged);
            }
            self.cluster.patience.sleep(RETRY)?;
        }
    }

    /// Asks storages one after the other; the last failure of a storage if none answers.
    fn ask_one_of<T>(
        &self,
        session: &Arc<Session>,
        nodes: &[NodeId],
        attempt: impl Fn(&Arc<Connection>) -> Result<T, NeoError>,
    ) -> Result<Result<T, Option<NeoError>>, NeoError> {
        let mut failed = None;
        for node in nodes {
            let answered =
                self.cluster.storage(session, *node).and_then(|connection| attempt(&connection));
            match answered {
                Ok(answer) => return Ok(Ok(answer)),
                Err(error @ NeoError::MasterLost) => failed = Some(error),
                Err(error) if error.is_of_node() => {
                    self.cluster.routing.write().failed(*node, Instant::now());
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Err(failed))
    }

    pub(crate) fn session(&self, deadline: Instant) -> Result<Arc<Session>, NeoError> {
        match self.session {
            Some(session) => session.check().map(|()| Arc::clone(session)),
            None => self.cluster.session(deadline),
        }
    }
}

/// What the answer to a load says of the object.
pub(crate) fn loaded_of(answer: Result<Record, NeoError>) -> Result<Loaded, NeoError> {
    match answer {
        Ok(record) => Ok(Loaded::Found(record)),
        Err(error) => match error.code() {
            Some(ErrorCode::OidNotFound) => Ok(Loaded::NotThen),
            Some(ErrorCode::OidDoesNotExist) => Ok(Loaded::Never),
            _ => Err(error),
        },
    }
}

/// Waits for the answer of a storage.
pub(crate) fn answer<T>(connection: &Connection, promise: Promise<T>) -> Result<T, NeoError> {
    promise.wait_for(ANSWER_TIME_MAX).unwrap_or_else(|| {
        let seconds = ANSWER_TIME_MAX.as_secs();
        Err(NeoError::lost(connection.peer(), format!("no answer within {seconds} s")))
    })
}

impl Unverified {
    pub(crate) fn of(message: Message<'_>) -> Option<Unverified> {
        let Message::AnswerObject(found) = message else { return None };
        let AnswerObject { serial, next_serial, compression, checksum, data, data_serial, .. } =
            found;
        let compression = compression.unwrap_or_default();
        let stored = StoredData { compression, hash: checksum.0, value: data.to_vec() };
        Some(Unverified { serial, next: next_serial, stored, data_serial })
    }

    /// The record, if its data are those that were stored.
    pub(crate) fn verify_for(self, oid: Oid, connection: &Connection) -> Result<Record, NeoError> {
        let (serial, peer) = (self.serial, connection.peer());
        let damaged = |what| NeoError::Damaged { oid, serial, peer: Arc::clone(peer), what };
        self.verify().map_err(damaged)
    }

    fn verify(self) -> Result<Record, &'static str> {
        let Unverified { serial, next, stored, data_serial } = self;
        let is_deletion = stored.value.is_empty() && stored.hash == Checksum::ZERO.0;
        let data = if is_deletion { None } else { Some(stored.into_data()?.into()) };
        Ok(Record { serial, next, data, data_serial })
    }
}
