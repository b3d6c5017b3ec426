//! All transactions of a storage in their order, read ahead.
//!
//! A server steps from record to record, one request each. So many transactions are gone through
//! at once, and what is asked of all of them goes out with one write. Each iterator of the server
//! has one request at a time: it is not theirs to be asked twice.
//!
//! Stock servers close their file when they have come to its end, also for records that were not
//! read yet. So the end is asked for only when nothing else is under way, as far as it is known
//! where the end is; a transaction that was cut off by it all the same is walked through once more.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::connection::Connection;
use crate::slot::Slot;
use crate::{Client, ClientError};

/// Transactions that are gone through at once.
const AHEAD_MAX: usize = 64;
/// Data that may wait to be taken before no further transaction is begun.
const AHEAD_BYTES_MAX: usize = 16 << 20;

/// A committed transaction with all that it wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct CommittedTransaction {
    /// Its tid.
    pub tid: Tid,
    /// `p` if it was packed, else a space.
    pub status: char,
    /// Who committed it; UTF-8 by convention.
    pub user: Vec<u8>,
    /// What for; UTF-8 by convention.
    pub description: Vec<u8>,
    /// A dict.
    pub extension: Value<'static>,
    /// What it wrote, in the order of the file.
    pub records: Vec<CommittedRecord>,
}

/// What a transaction wrote for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedRecord {
    /// The object.
    pub oid: Oid,
    /// The transaction.
    pub tid: Tid,
    /// Its data; `None`: the object is gone from then on.
    pub data: Option<Bytes>,
    /// The earlier transaction that wrote the same data, which the record only points to.
    pub data_tid: Option<Tid>,
}

type Answer = Arc<Slot<Value<'static>>>;

/// Transactions in their order. After an error there are no more.
pub struct Transactions {
    connection: Arc<Connection>,
    /// The server's number for the place in the log.
    number: Value<'static>,
    /// No transaction is expected after this one.
    last: Tid,
    /// The next transaction, when it is asked for.
    following: Option<Answer>,
    ahead: VecDeque<Walk>,
    ahead_bytes: usize,
    is_over: bool,
}

/// A walk through the records of a transaction.
struct Walk {
    transaction: CommittedTransaction,
    /// The server's number for it.
    number: Option<Value<'static>>,
    /// What is asked for: that number, or else a record. `None`: it is whole.
    asked: Option<Answer>,
}

impl Client {
    /// All transactions from `start` to `stop`, both included, oldest first, with their records.
    /// Each is in memory as a whole, and so are some that follow.
    pub fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Transactions, ClientError> {
        let shared = self.shared();
        let connection = shared.connection()?;
        let last = stop.unwrap_or(Tid::MAX).min(shared.last_tid());
        let range = Value::tuple([start.into(), stop.into()]);
        let number = connection.call("iterator_start", &range)?;
        let ahead = VecDeque::new();
        let (following, ahead_bytes, is_over) = (None, 0, false);
        Ok(Transactions { connection, number, last, following, ahead, ahead_bytes, is_over })
    }
}

impl Iterator for Transactions {
    type Item = Result<CommittedTransaction, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.step().transpose();
        if let Some(Err(_)) = &next {
            self.give_up();
        }
        next
    }
}

impl Transactions {
    fn step(&mut self) -> Result<Option<CommittedTransaction>, ClientError> {
        loop {
            self.pump()?;
            let awaited = match self.ahead.front() {
                Some(Walk { asked: None, .. }) => {
                    let whole = self.ahead.pop_front().map(|walk| walk.transaction);
                    self.ahead_bytes -=
                        whole.iter().map(CommittedTransaction::bytes).sum::<usize>();
                    return Ok(whole);
                }
                Some(Walk { asked: Some(asked), .. }) => asked,
                None => match &self.following {
                    Some(following) => following,
                    None => return Ok(None),
                },
            };
            self.connection.wait(awaited)?;
        }
    }

    /// Takes what was answered, and asks for what comes next.
    fn pump(&mut self) -> Result<(), ClientError> {
        let mut output = BytesMut::new();
        if let Some(answer) = self.following.as_ref().and_then(|following| following.take()) {
            self.following = None;
            match answer? {
                Value::None => self.is_over = true,
                // First its records: the place in the log is still there.
                head => self.begin(head, &mut output)?,
            }
        }
        for walk in &mut self.ahead {
            match walk.pump(&self.connection, &mut output) {
                Err(ClientError::Raised(_)) if self.is_over => walk.repeat(&self.connection)?,
                bytes => self.ahead_bytes += bytes?,
            }
        }
        if self.following.is_none() && !self.is_over && self.has_room() {
            let number = Value::tuple([self.number.clone()]);
            let asked = self.connection.add_request(&mut output, "iterator_next", &number, None)?;
            self.following = Some(asked);
        }
        if output.is_empty() { Ok(()) } else { self.connection.send(&output) }
    }

    /// Whether the next transaction may be asked for.
    fn has_room(&self) -> bool {
        let is_whole = |walk: &Walk| walk.asked.is_none();
        let is_last = self.ahead.back().is_some_and(|walk| walk.transaction.tid >= self.last);
        let has_room = self.ahead.len() < AHEAD_MAX && self.ahead_bytes < AHEAD_BYTES_MAX;
        has_room && (!is_last || self.ahead.iter().all(is_whole))
    }

    fn begin(&mut self, head: Value<'static>, output: &mut BytesMut) -> Result<(), ClientError> {
        let transaction = CommittedTransaction::from_answer(head)?;
        let place = Value::tuple([self.number.clone(), transaction.tid.into()]);
        let started = self.connection.add_request(output, "iterator_record_start", &place, None)?;
        self.ahead.push_back(Walk { transaction, number: None, asked: Some(started) });
        Ok(())
    }

    /// The server need not keep our places any longer. What it is at has to come back first: it
    /// would keep that for ever, and a number that we were not told cannot be given up.
    fn give_up(&mut self) {
        if let Some(following) = self.following.take() {
            let _ = self.connection.wait(&following);
        }
        let mut numbers = Vec::new();
        for Walk { number, asked, .. } in self.ahead.drain(..) {
            let Some(asked) = asked else { continue };
            let _ = self.connection.wait(&asked);
            numbers.extend(number.or_else(|| asked.take()?.ok()));
        }
        if !self.is_over {
            numbers.push(self.number.clone());
        }
        self.is_over = true;
        if !numbers.is_empty() {
            // A server that has gone has no places.
            let _ = self.connection.cast("iterator_gc", &Value::tuple([Value::List(numbers)]));
        }
    }
}

impl Drop for Transactions {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Walk {
    /// Goes one step on if it can; the bytes that have come.
    fn pump(
        &mut self,
        connection: &Connection,
        output: &mut BytesMut,
    ) -> Result<usize, ClientError> {
        let Some(answer) = self.asked.as_ref().and_then(|asked| asked.take()) else {
            return Ok(0);
        };
        self.asked = None;
        let answer = answer?;
        let mut bytes = 0;
        if self.number.is_none() {
            self.number = Some(answer);
        } else if answer.is_none() {
            self.number = None;
            return Ok(0);
        } else {
            let record = CommittedRecord::from_answer(answer)?;
            bytes = record.bytes();
            self.transaction.records.push(record);
        }
        let number = Value::tuple(self.number.clone());
        self.asked = Some(connection.add_request(output, "iterator_record_next", &number, None)?);
        Ok(bytes)
    }
}

impl Walk {
    /// Walks through the transaction once more, by itself.
    fn repeat(&mut self, connection: &Connection) -> Result<(), ClientError> {
        let tid = Value::from(self.transaction.tid);
        let place = connection.call("iterator_start", &Value::tuple([tid.clone(), tid.clone()]))?;
        connection.call("iterator_next", &Value::tuple([place.clone()]))?;
        let start = Value::tuple([place.clone(), tid]);
        let records = Value::tuple([connection.call("iterator_record_start", &start)?]);
        self.transaction.records.clear();
        (self.number, self.asked) = (None, None);
        loop {
            match connection.call("iterator_record_next", &records)? {
                Value::None => break,
                record => self.transaction.records.push(CommittedRecord::from_answer(record)?),
            }
        }
        connection.cast("iterator_gc", &Value::tuple([Value::list([place])]))
    }
}

impl CommittedTransaction {
    fn from_answer(answer: Value<'static>) -> Result<CommittedTransaction, ClientError> {
        let parts = answer.into_sequence().map(<[Value<'_>; 5]>::try_from);
        if let Some(Ok([tid, status, user, description, extension])) = parts
            && let Some(tid) = tid.as_tid()
        {
            let status = status.as_str().and_then(|text| text.chars().next()).unwrap_or(' ');
            let bytes = |value: &Value<'_>| value.as_bytes().unwrap_or_default().to_vec();
            let (user, description, records) = (bytes(&user), bytes(&description), Vec::new());
            return Ok(CommittedTransaction { tid, status, user, description, extension, records });
        }
        Err(ClientError::Unexpected { method: "iterator_next", expected: "a transaction" })
    }

    fn bytes(&self) -> usize {
        self.records.iter().map(CommittedRecord::bytes).sum()
    }
}

impl CommittedRecord {
    fn from_answer(answer: Value<'static>) -> Result<CommittedRecord, ClientError> {
        let parts = answer.into_sequence().map(<[Value<'_>; 4]>::try_from);
        if let Some(Ok([oid, tid, data, data_tid])) = parts
            && let (Some(oid), Some(tid)) = (oid.as_oid(), tid.as_tid())
        {
            let data = match data {
                Value::Bytes(data) => Some(Bytes::from(data.into_owned())),
                _ => None,
            };
            return Ok(CommittedRecord { oid, tid, data, data_tid: data_tid.as_tid() });
        }
        Err(ClientError::Unexpected { method: "iterator_record_next", expected: "a record" })
    }

    fn bytes(&self) -> usize {
        self.data.as_ref().map_or(0, Bytes::len)
    }
}
