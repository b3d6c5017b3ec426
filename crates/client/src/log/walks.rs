//! Reads the log from a stock server, which returns one record per request. Many transactions are
//! walked in parallel, and the requests for all of them go out with one write.
//!
//! A server answers pipelined requests for one iterator in order. The end of a transaction is not
//! known in advance, and a stock server logs an error for each request beyond it. So requests are
//! pipelined only while few transactions are walked, and at most an eighth of the records received
//! so far ahead.
//!
//! Stock servers close their file when an iterator of transactions reaches its end, even if records
//! are still unread. So the end is requested only while nothing else is pending, as far as the end
//! is known. A transaction that was cut off all the same is walked again.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use zodium_pickle::Value;
use zodium_types::Tid;

use super::{Item, TransactionHead};
use crate::connection::Connection;
use crate::promise::Promise;
use crate::{ClientError, CommittedRecord};

/// Transactions walked in parallel.
const AHEAD_MAX: usize = 64;
/// Unread bytes above which only the first transaction is continued.
const AHEAD_BYTES_MAX: usize = 16 << 20;
/// Records requested at once for one transaction.
const RECORDS_AHEAD_MAX: usize = 16;
/// With more transactions than this, pipelining within one is not needed.
const FEW: usize = 8;
/// Items returned before replies are looked at again.
const UNSEEN_MAX: usize = 16;

type Answer = Arc<Promise<Value<'static>>>;

pub(super) struct Walks {
    connection: Arc<Connection>,
    /// The server's id of the iterator.
    pub(super) number: Value<'static>,
    /// The last transaction expected.
    last: Tid,
    pub(super) with_records: bool,
    /// The pending request for the next transaction.
    following: Option<Answer>,
    ahead: VecDeque<Walk>,
    ahead_bytes: usize,
    is_over: bool,
    /// Why there is no further transaction, reported after those that were received.
    failure: Option<ClientError>,
    /// Items returned since replies were looked at.
    unseen: usize,
}

/// The iteration over the records of one transaction.
struct Walk {
    tid: Tid,
    /// `None` once it was returned.
    head: Option<TransactionHead>,
    /// The server's id of the record iterator.
    number: Option<Value<'static>>,
    /// Pending requests: for that id, or else for records.
    asked: VecDeque<Answer>,
    /// Records received but not returned, and how many were received and returned.
    records: VecDeque<CommittedRecord>,
    bytes: usize,
    come: usize,
    taken: usize,
    is_whole: bool,
    is_skipped: bool,
    /// Why the walk ended, reported after the records that were received.
    failure: Option<ClientError>,
}

impl Walks {
    pub(super) fn new(connection: Arc<Connection>, number: Value<'static>, last: Tid) -> Walks {
        Walks {
            connection,
            number,
            last,
            with_records: true,
            following: None,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            is_over: false,
            failure: None,
            unseen: UNSEEN_MAX,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ahead.front().is_some_and(|walk| !walk.records.is_empty() || walk.is_whole)
    }

    pub(super) fn step(&mut self) -> Result<Option<Item>, ClientError> {
        loop {
            self.unseen += 1;
            if self.unseen >= UNSEEN_MAX || !self.has_item() {
                self.unseen = 0;
                self.pump()?;
            }
            if let Some(item) = self.take_item() {
                return Ok(Some(item));
            }
            let front = self.ahead.front();
            if let Some(failure) = front.and_then(|walk| walk.failure.clone()) {
                return Err(failure);
            }
            let awaited = match front.and_then(|walk| walk.asked.front()) {
                Some(asked) => asked,
                // That was the last record of its transaction.
                None if front.is_some() => continue,
                None => match (&self.following, &self.failure) {
                    (Some(following), _) => following,
                    (None, Some(failure)) => return Err(failure.clone()),
                    (None, None) if self.is_over => return Ok(None),
                    (None, None) => continue,
                },
            };
            self.connection.wait(awaited)?;
        }
    }

    fn has_item(&self) -> bool {
        let front = self.ahead.front();
        front.is_some_and(|walk| walk.head.is_some() || !walk.records.is_empty())
    }

    fn take_item(&mut self) -> Option<Item> {
        loop {
            let walk = self.ahead.front_mut()?;
            if let Some(head) = walk.head.take() {
                return Some(Item::Transaction(head));
            }
            if let Some(record) = walk.records.pop_front() {
                walk.taken += 1;
                walk.bytes -= record.bytes();
                self.ahead_bytes -= record.bytes();
                return Some(Item::Record(record));
            }
            if !walk.is_whole {
                return None;
            }
            let is_skipped = walk.is_skipped;
            self.ahead.pop_front();
            if is_skipped {
                return Some(Item::Skipped);
            }
        }
    }

    /// Handles replies, and sends further requests.
    fn pump(&mut self) -> Result<(), ClientError> {
        let mut output = BytesMut::new();
        if let Some(answer) = self.following.as_ref().and_then(|following| following.take()) {
            self.following = None;
            match answer {
                Ok(Value::None) => self.is_over = true,
                // Requests its records first, while the server still has the place in the log.
                Ok(head) => self.begin(head, &mut output)?,
                Err(failure) => self.failure = Some(failure),
            }
        }
        for walk in &mut self.ahead {
            self.ahead_bytes -= walk.bytes;
            let mut taken = walk.take_answers();
            if self.is_over && matches!(taken, Err(ClientError::Raised(_))) {
                taken = walk.repeat(&self.connection);
            }
            self.ahead_bytes += walk.bytes;
            // Reported after the records received before it.
            walk.failure = walk.failure.take().or(taken.err());
        }
        let open = self.ahead.iter().filter(|walk| !walk.is_over()).count();
        let is_full = self.ahead_bytes >= AHEAD_BYTES_MAX;
        for (place, walk) in self.ahead.iter_mut().enumerate() {
            if !is_full || place == 0 && walk.records.is_empty() {
                walk.ask(&self.connection, open <= FEW, &mut output)?;
            }
        }
        if self.following.is_none() && !self.is_over && self.has_room() {
            let number = Value::tuple([self.number.clone()]);
            let asked = self.connection.add_request(&mut output, "iterator_next", &number, None)?;
            self.following = Some(asked);
        }
        if output.is_empty() { Ok(()) } else { self.connection.send(&output) }
    }

    /// Whether the next transaction may be requested.
    fn has_room(&self) -> bool {
        let is_last = self.ahead.back().is_some_and(|walk| walk.tid >= self.last);
        let has_room = self.ahead.len() < AHEAD_MAX && self.ahead_bytes < AHEAD_BYTES_MAX;
        self.failure.is_none() && has_room && (!is_last || self.ahead.iter().all(Walk::is_over))
    }

    fn begin(&mut self, head: Value<'static>, output: &mut BytesMut) -> Result<(), ClientError> {
        let head = TransactionHead::from_answer(head)?;
        let tid = head.tid;
        let mut asked = VecDeque::new();
        if self.with_records {
            let place = Value::tuple([self.number.clone(), tid.into()]);
            let start = "iterator_record_start";
            asked.push_back(self.connection.add_request(output, start, &place, None)?);
        }
        self.ahead.push_back(Walk {
            tid,
            head: Some(head),
            number: None,
            asked,
            records: VecDeque::new(),
            bytes: 0,
            come: 0,
            taken: 0,
            is_whole: !self.with_records,
            is_skipped: !self.with_records,
            failure: None,
        });
        Ok(())
    }
}

impl Drop for Walks {
    /// Releases the server's iterators. Waits for the ids of those that are still pending:
    /// otherwise the server would keep them for ever.
    fn drop(&mut self) {
        let mut numbers = Vec::new();
        for mut walk in self.ahead.drain(..).filter(|walk| !walk.is_whole) {
            let asked = walk.asked.pop_front().filter(|_| walk.number.is_none());
            let started = asked.and_then(|asked| {
                let _ = self.connection.wait(&asked);
                asked.take()?.ok()
            });
            numbers.extend(walk.number.or(started));
        }
        if !self.is_over {
            numbers.push(self.number.clone());
        }
        if !numbers.is_empty() {
            // If the connection is gone, so are its iterators.
            let _ = self.connection.cast("iterator_gc", &Value::tuple([Value::List(numbers)]));
        }
    }
}

impl Walk {
    /// Handles replies.
    fn take_answers(&mut self) -> Result<(), ClientError> {
        while let Some(answer) = self.asked.front().and_then(|asked| asked.take()) {
            self.asked.pop_front();
            let answer = answer?;
            if self.number.is_none() {
                self.number = Some(answer);
            } else if answer.is_none() {
                self.is_whole = true;
                // Requests that went beyond the end.
                self.asked.clear();
            } else {
                let record = CommittedRecord::from_answer(answer)?;
                self.come += 1;
                self.bytes += record.bytes();
                self.records.push_back(record);
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_whole || self.failure.is_some()
    }

    /// Sends further requests.
    fn ask(
        &mut self,
        connection: &Connection,
        far: bool,
        output: &mut BytesMut,
    ) -> Result<(), ClientError> {
        let Some(number) = self.number.as_ref().filter(|_| !self.is_over()) else { return Ok(()) };
        let count = if far { (1 + self.come / 8).min(RECORDS_AHEAD_MAX) } else { 1 };
        let number = Value::tuple([number.clone()]);
        while self.asked.len() < count {
            let asked = connection.add_request(output, "iterator_record_next", &number, None)?;
            self.asked.push_back(asked);
        }
        Ok(())
    }

    /// Walks the transaction again, alone.
    fn repeat(&mut self, connection: &Connection) -> Result<(), ClientError> {
        let tid = Value::from(self.tid);
        let place = connection.call("iterator_start", &Value::tuple([tid.clone(), tid.clone()]))?;
        connection.call("iterator_next", &Value::tuple([place.clone()]))?;
        let start = Value::tuple([place.clone(), tid]);
        let records = Value::tuple([connection.call("iterator_record_start", &start)?]);
        self.records.clear();
        self.asked.clear();
        self.bytes = 0;
        let mut passed = 0;
        loop {
            match connection.call("iterator_record_next", &records)? {
                Value::None => break,
                _ if passed < self.taken => passed += 1,
                record => {
                    let record = CommittedRecord::from_answer(record)?;
                    self.bytes += record.bytes();
                    self.records.push_back(record);
                }
            }
        }
        // Only now: a walk that fails on the way must not pass for a whole one.
        self.is_whole = true;
        connection.cast("iterator_gc", &Value::tuple([Value::list([place])]))
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
