//! Reads the log of a storage ahead: transactions and their records, one after the other.
//!
//! Key decision: the read-ahead is bounded in bytes, even within one large transaction. A Zodium
//! server answers with many records at once (`chunks.rs`). A stock server is asked through many
//! of its iterators in parallel (`walks.rs`).
//!
//! A caller that skips the records of several transactions in a row gets no more of them. When it
//! asks for records again, the reader restarts at that transaction.

mod chunks;
mod head;
mod walks;

use std::sync::Arc;

use chunks::LogChunks;
pub use head::{Extension, TransactionHead};
use walks::Walks;
use zodium_pickle::Value;
use zodium_types::Tid;

use crate::connection::Connection;
use crate::{Client, ClientError, CommittedRecord};

/// After this many transactions in a row without a record taken, records are no longer requested.
const UNREAD_MAX: usize = 4;

/// The next item of the log.
enum Item {
    Transaction(TransactionHead),
    Record(CommittedRecord),
    /// Stands for records that were not requested.
    Skipped,
}

/// Reads ahead on one connection. When the connection ends, so does the reader; a new reader can
/// continue after the last transaction seen.
pub struct LogReader {
    connection: Arc<Connection>,
    has_chunks: bool,
    /// The last transaction wanted, also after a restart.
    stop: Tid,
    source: Source,
    current: Option<Current>,
    /// The transaction after the current one, if it has arrived already.
    following: Option<TransactionHead>,
    /// Transactions in a row whose records the caller skipped.
    unread: usize,
    failure: Option<ClientError>,
}

enum Source {
    Chunks(LogChunks),
    Walks(Walks),
}

/// The transaction whose records are being read.
struct Current {
    tid: Tid,
    /// Number of records taken.
    taken: usize,
    /// Whether all its records have been read.
    is_whole: bool,
}

impl Client {
    /// Reads the transactions from `start` to `stop`, both included, oldest first. Transactions
    /// committed after this call are not included.
    pub fn read_log(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<LogReader, ClientError> {
        let shared = self.shared();
        let current = shared.established()?;
        let (connection, has_chunks) = (Arc::clone(&current.connection), current.has_chunks);
        // A broken clock can have made tids beyond `Tid::MAX`.
        let asked = stop.unwrap_or(Tid(u64::MAX));
        let known = asked.min(shared.told.so_far());
        let source = Source::start(&connection, has_chunks, (start, stop), known)?;
        // A restarted reader must not include commits that came meanwhile.
        let stop = asked.min(shared.told.so_far());
        Ok(LogReader {
            connection,
            has_chunks,
            stop,
            source,
            current: None,
            following: None,
            unread: 0,
            failure: None,
        })
    }
}

impl LogReader {
    /// The next transaction; skips the remaining records of the current one. After a record that
    /// could not be read, the reader continues with the next transaction. Any other error is final.
    pub fn next_transaction(&mut self) -> Result<Option<TransactionHead>, ClientError> {
        self.recover()?;
        let outcome = self.check_connection().and_then(|()| self.step_transaction());
        self.note(outcome)
    }

    /// As [`LogReader::next_transaction`], for a caller that wants no records of it: they are not
    /// requested.
    pub fn next_head(&mut self) -> Result<Option<TransactionHead>, ClientError> {
        self.source.want_no_records();
        self.next_transaction()
    }

    /// The next record of the current transaction; `None` at its end.
    pub fn next_record(&mut self) -> Result<Option<CommittedRecord>, ClientError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let outcome = self.check_connection().and_then(|()| self.step_record());
        self.note(outcome)
    }

    /// The records that are available without waiting, at least one and at most `count`; none at
    /// the end of the transaction.
    pub fn next_records(&mut self, count: usize) -> Result<Vec<CommittedRecord>, ClientError> {
        let mut records = Vec::new();
        while records.len() < count && (records.is_empty() || self.source.is_ready()) {
            match self.next_record() {
                Ok(Some(record)) => records.push(record),
                Ok(None) => break,
                Err(error) if records.is_empty() => return Err(error),
                // The error is kept for the next call.
                Err(_) => break,
            }
        }
        Ok(records)
    }

    /// The current transaction, and how many of its records were taken.
    pub fn position(&self) -> Option<(Tid, usize)> {
        self.current.as_ref().map(|current| (current.tid, current.taken))
    }

    /// The server's id of the iterator.
    pub fn number(&self) -> i128 {
        let number = match &self.source {
            Source::Chunks(chunks) => &chunks.number,
            Source::Walks(walks) => &walks.number,
        };
        number.as_int().unwrap_or(-1)
    }

    /// Records that were read ahead are not returned after the connection has ended.
    fn check_connection(&self) -> Result<(), ClientError> {
        self.connection.end_reason().map_or(Ok(()), |reason| Err(reason.clone()))
    }

    fn note<T>(&mut self, outcome: Result<T, ClientError>) -> Result<T, ClientError> {
        match &outcome {
            // Nothing is lost, and the caller may continue.
            Ok(_) | Err(ClientError::Interrupted) => {}
            Err(error) => self.failure = Some(error.clone()),
        }
        outcome
    }

    /// After a record that could not be read: restarts after its transaction.
    fn recover(&mut self) -> Result<(), ClientError> {
        let Some(failure) = self.failure.clone() else { return Ok(()) };
        let last = self.current.as_ref().map(|current| current.tid);
        match (&failure, last) {
            (ClientError::Raised(_), Some(last)) if last < self.stop => {
                self.begin_anew(last.next())?;
                (self.current, self.failure) = (None, None);
                Ok(())
            }
            _ => Err(failure),
        }
    }

    fn step_transaction(&mut self) -> Result<Option<TransactionHead>, ClientError> {
        let is_unread = |current: &Current| current.taken == 0 && !current.is_whole;
        let passed = self.current.take();
        match &passed {
            Some(current) if is_unread(current) => self.unread += 1,
            Some(_) => self.unread = 0,
            None => {}
        }
        if self.unread == UNREAD_MAX {
            self.source.want_no_records();
        }
        let mut head = self.following.take();
        while head.is_none() {
            match self.source.step() {
                Ok(Some(Item::Transaction(next))) => head = Some(next),
                Ok(Some(Item::Record(_) | Item::Skipped)) => {}
                Ok(None) => break,
                Err(error) => {
                    if matches!(error, ClientError::Raised(_)) {
                        // Mostly one of its records cannot be read: recovery begins after it.
                        self.current = passed.filter(|passed| !passed.is_whole);
                    }
                    return Err(error);
                }
            }
        }
        self.current =
            head.as_ref().map(|head| Current { tid: head.tid, taken: 0, is_whole: false });
        Ok(head)
    }

    fn step_record(&mut self) -> Result<Option<CommittedRecord>, ClientError> {
        loop {
            let Some(current) = self.current.as_mut().filter(|current| !current.is_whole) else {
                return Ok(None);
            };
            match self.source.step()? {
                Some(Item::Record(record)) => {
                    current.taken += 1;
                    return Ok(Some(record));
                }
                Some(Item::Skipped) => {
                    // An interruption in between would lose the position.
                    let wanted = self.want_records();
                    self.failure = wanted.clone().err();
                    wanted?;
                }
                Some(Item::Transaction(next)) => {
                    current.is_whole = true;
                    self.following = Some(next);
                }
                None => current.is_whole = true,
            }
        }
    }

    /// Restarts at the point where records were skipped.
    fn want_records(&mut self) -> Result<(), ClientError> {
        let Some(&Current { tid, taken, .. }) = self.current.as_ref() else { return Ok(()) };
        self.begin_anew(tid)?;
        let gone = || ClientError::Unexpected {
            method: "iterator_next",
            expected: "the transaction that it returned before; a pack has removed it",
        };
        match self.source.step()? {
            Some(Item::Transaction(head)) if head.tid == tid => {}
            _ => return Err(gone()),
        }
        for _ in 0..taken {
            let Some(Item::Record(_)) = self.source.step()? else { return Err(gone()) };
        }
        Ok(())
    }

    fn begin_anew(&mut self, start: Tid) -> Result<(), ClientError> {
        let range = (Some(start), Some(self.stop));
        self.source = Source::start(&self.connection, self.has_chunks, range, self.stop)?;
        self.unread = 0;
        self.following = None;
        Ok(())
    }
}

impl Source {
    fn start(
        connection: &Arc<Connection>,
        has_chunks: bool,
        (start, stop): (Option<Tid>, Option<Tid>),
        last: Tid,
    ) -> Result<Source, ClientError> {
        let number =
            connection.call("iterator_start", &Value::tuple([start.into(), stop.into()]))?;
        let connection = Arc::clone(connection);
        Ok(match has_chunks {
            true => Source::Chunks(LogChunks::new(connection, number)),
            false => Source::Walks(Walks::new(connection, number, last)),
        })
    }

    fn step(&mut self) -> Result<Option<Item>, ClientError> {
        match self {
            Source::Chunks(chunks) => chunks.step(),
            Source::Walks(walks) => walks.step(),
        }
    }

    /// Whether a step returns without waiting.
    fn is_ready(&self) -> bool {
        match self {
            Source::Chunks(chunks) => chunks.is_ready(),
            Source::Walks(walks) => walks.is_ready(),
        }
    }

    fn want_no_records(&mut self) {
        match self {
            Source::Chunks(chunks) => chunks.with_records = false,
            Source::Walks(walks) => walks.with_records = false,
        }
    }
}
