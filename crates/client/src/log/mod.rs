//! The log of a storage, read ahead: transactions and their records, one after the other.
//!
//! Key decision: what is ahead is bounded in bytes, also within a transaction, however large that
//! is. Where the server can, it answers with many records at once (`stretches.rs`), else many of
//! its iterators are asked side by side (`walks.rs`).
//!
//! Who passes over the records of several transactions gets no more of them, until it wants some
//! again: then the reader begins anew at that transaction.

mod head;
mod stretches;
mod walks;

use std::sync::Arc;

pub use head::{Extension, TransactionHead};
use stretches::Stretches;
use walks::Walks;
use zodium_pickle::Value;
use zodium_types::Tid;

use crate::connection::Connection;
use crate::{Client, ClientError, CommittedRecord};

/// Transactions in a row of which nobody wants the records before no more are asked for.
const UNREAD_MAX: usize = 4;

/// What comes next in the log.
enum Item {
    Transaction(TransactionHead),
    Record(CommittedRecord),
    /// Records would come here, but were not asked for.
    Skipped,
}

/// Reads ahead on one connection, and ends with it: what was asked for is then told as lost, and a
/// new reader can begin after the last transaction that was seen.
pub struct LogReader {
    connection: Arc<Connection>,
    has_stretches: bool,
    /// The last transaction that is wanted, also when the reader has to begin anew.
    stop: Tid,
    source: Source,
    current: Option<Current>,
    /// The transaction after that, when it has come.
    following: Option<TransactionHead>,
    /// Transactions in a row of which no record was taken.
    unread: usize,
    failure: Option<ClientError>,
}

enum Source {
    Stretches(Stretches),
    Walks(Walks),
}

/// The transaction whose records come.
struct Current {
    tid: Tid,
    /// How many were taken.
    taken: usize,
    /// There are no more.
    is_whole: bool,
}

impl Client {
    /// Reads all transactions from `start` to `stop`, both included, oldest first. What is
    /// committed from now on is not among them.
    pub fn read_log(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<LogReader, ClientError> {
        let shared = self.shared();
        let current = shared.established()?;
        let (connection, has_stretches) = (Arc::clone(&current.connection), current.has_stretches);
        let known = stop.unwrap_or(Tid::MAX).min(shared.last_tid());
        let source = Source::start(&connection, has_stretches, (start, stop), known)?;
        // To begin anew must not bring commits that came meanwhile.
        let stop = stop.unwrap_or(Tid::MAX).min(shared.last_tid());
        Ok(LogReader {
            connection,
            has_stretches,
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
    /// The next transaction; the rest of the one before is passed over. A reader that could not
    /// read a record goes on with the next transaction; after any other error there is only that.
    pub fn next_transaction(&mut self) -> Result<Option<TransactionHead>, ClientError> {
        self.recover()?;
        let outcome = self.check_connection().and_then(|()| self.step_transaction());
        self.note(outcome)
    }

    /// The next record of the transaction that was given last; `None`: that was all.
    pub fn next_record(&mut self) -> Result<Option<CommittedRecord>, ClientError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let outcome = self.check_connection().and_then(|()| self.step_record());
        self.note(outcome)
    }

    /// As many records as are there without waiting for more, `count` at most; none: that was all.
    pub fn next_records(&mut self, count: usize) -> Result<Vec<CommittedRecord>, ClientError> {
        let mut records = Vec::new();
        while records.len() < count && (records.is_empty() || self.source.is_ready()) {
            match self.next_record() {
                Ok(Some(record)) => records.push(record),
                Ok(None) => break,
                Err(error) if records.is_empty() => return Err(error),
                // It is kept for the next call.
                Err(_) => break,
            }
        }
        Ok(records)
    }

    /// The transaction whose records come, and how many of them were taken.
    pub fn position(&self) -> Option<(Tid, usize)> {
        self.current.as_ref().map(|current| (current.tid, current.taken))
    }

    /// The server's number for the place in its log.
    pub fn number(&self) -> i128 {
        let number = match &self.source {
            Source::Stretches(stretches) => &stretches.number,
            Source::Walks(walks) => &walks.number,
        };
        number.as_int().unwrap_or(-1)
    }

    /// What was read ahead is not given any more once the connection has ended.
    fn check_connection(&self) -> Result<(), ClientError> {
        self.connection.end_reason().map_or(Ok(()), |reason| Err(reason.clone()))
    }

    fn note<T>(&mut self, outcome: Result<T, ClientError>) -> Result<T, ClientError> {
        match &outcome {
            // Nothing is lost, and the caller may go on.
            Ok(_) | Err(ClientError::Interrupted) => {}
            Err(error) => self.failure = Some(error.clone()),
        }
        outcome
    }

    /// After a record that could not be read: begins anew behind its transaction.
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
        match self.current.take() {
            Some(current) if is_unread(&current) => self.unread += 1,
            Some(_) => self.unread = 0,
            None => {}
        }
        if self.unread == UNREAD_MAX {
            self.source.want_no_records();
        }
        let mut head = self.following.take();
        while head.is_none() {
            match self.source.step()? {
                Some(Item::Transaction(next)) => head = Some(next),
                Some(Item::Record(_) | Item::Skipped) => {}
                None => break,
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
                    // Interrupted in between it would not know where it is.
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

    /// Goes back to where the records of the transaction were passed over.
    fn want_records(&mut self) -> Result<(), ClientError> {
        let Some(&Current { tid, taken, .. }) = self.current.as_ref() else { return Ok(()) };
        self.begin_anew(tid)?;
        let gone = || ClientError::Unexpected {
            method: "iterator_next",
            expected: "the transaction that it has given before: a pack has taken it away",
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
        self.source = Source::start(&self.connection, self.has_stretches, range, self.stop)?;
        self.unread = 0;
        self.following = None;
        Ok(())
    }
}

impl Source {
    fn start(
        connection: &Arc<Connection>,
        has_stretches: bool,
        (start, stop): (Option<Tid>, Option<Tid>),
        last: Tid,
    ) -> Result<Source, ClientError> {
        let number =
            connection.call("iterator_start", &Value::tuple([start.into(), stop.into()]))?;
        let connection = Arc::clone(connection);
        Ok(match has_stretches {
            true => Source::Stretches(Stretches::new(connection, number)),
            false => Source::Walks(Walks::new(connection, number, last)),
        })
    }

    fn step(&mut self) -> Result<Option<Item>, ClientError> {
        match self {
            Source::Stretches(stretches) => stretches.step(),
            Source::Walks(walks) => walks.step(),
        }
    }

    /// Whether a step will not wait.
    fn is_ready(&self) -> bool {
        match self {
            Source::Stretches(stretches) => stretches.is_ready(),
            Source::Walks(walks) => walks.is_ready(),
        }
    }

    fn want_no_records(&mut self) {
        match self {
            Source::Stretches(stretches) => stretches.with_records = false,
            Source::Walks(walks) => walks.with_records = false,
        }
    }
}
