//! Reads the log from a server that answers with many records at once, keeping requests pending.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use zodium_pickle::Value;
use zodium_types::Tid;
use zodium_zeo::codec::ChunkItem;

use super::{Extension, Item, TransactionHead};
use crate::chunk::{READ_LOG, bytes_of, take_item};
use crate::connection::Connection;
use crate::promise::Promise;
use crate::{ClientError, CommittedRecord};

/// Size of the first answer: small, for callers that read a single transaction.
const FIRST_BYTES: usize = 32 << 10;
/// Size of further answers. A record keeps the whole answer alive.
const CHUNK_BYTES: usize = 256 << 10;
/// Most pending requests, reached after as many answers: 2 MiB.
const AHEAD_MAX: usize = 8;

pub(super) struct LogChunks {
    connection: Arc<Connection>,
    /// The server's id of the iterator.
    pub(super) number: Value<'static>,
    pub(super) with_records: bool,
    asked: VecDeque<Arc<Promise<Value<'static>>>>,
    /// How many requests may be pending, and the size of the answers.
    ahead: usize,
    bytes: usize,
    /// The unread part of the last answer, and the transaction that it is in.
    chunk: Bytes,
    tid: Tid,
    is_over: bool,
}

/// What to do with an item.
enum Step {
    Give(Item),
    End,
    /// An item of a kind that does not belong in a log.
    Stray,
}

impl LogChunks {
    pub(super) fn new(connection: Arc<Connection>, number: Value<'static>) -> LogChunks {
        LogChunks {
            connection,
            number,
            with_records: true,
            asked: VecDeque::new(),
            ahead: 1,
            bytes: FIRST_BYTES,
            chunk: Bytes::new(),
            tid: Tid::ZERO,
            is_over: false,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.chunk.is_empty()
    }

    pub(super) fn step(&mut self) -> Result<Option<Item>, ClientError> {
        loop {
            let tid = self.tid;
            match take_item(&mut self.chunk, |item, cut| step_of(item, tid, cut))? {
                Some(Step::Give(item)) => {
                    if let Item::Transaction(head) = &item {
                        self.tid = head.tid;
                    }
                    return Ok(Some(item));
                }
                Some(Step::End) => self.is_over = true,
                Some(Step::Stray) => {
                    let expected = "transactions and their records";
                    return Err(ClientError::Unexpected { method: READ_LOG, expected });
                }
                None if self.is_over => return Ok(None),
                None => self.chunk = self.next_chunk()?,
            }
        }
    }

    fn next_chunk(&mut self) -> Result<Bytes, ClientError> {
        self.ask()?;
        let Some(asked) = self.asked.front().cloned() else { return Ok(Bytes::new()) };
        // An interrupted caller can continue later.
        self.connection.wait(&asked)?;
        self.asked.pop_front();
        let chunk = bytes_of(self.connection.taken(&asked)?, READ_LOG)?;
        // Answers are being used, so request more ahead.
        self.ahead = (self.ahead + 1).min(AHEAD_MAX);
        self.bytes = (self.bytes * 2).min(CHUNK_BYTES);
        self.ask()?;
        Ok(chunk)
    }

    fn ask(&mut self) -> Result<(), ClientError> {
        let mut output = BytesMut::new();
        while self.asked.len() < self.ahead {
            let bytes = Value::Int(self.bytes as i128);
            let arguments = Value::tuple([self.number.clone(), bytes, self.with_records.into()]);
            let asked = self.connection.add_request(&mut output, READ_LOG, &arguments, None)?;
            self.asked.push_back(asked);
        }
        if output.is_empty() { Ok(()) } else { self.connection.send(&output) }
    }
}

impl Drop for LogChunks {
    /// Releases the server's iterator, without waiting for pending answers.
    fn drop(&mut self) {
        let numbers = Value::list([self.number.clone()]);
        // If the connection is gone, so are its iterators.
        let _ = self.connection.cast("iterator_gc", &Value::tuple([numbers]));
    }
}

fn step_of(item: ChunkItem<'_>, current: Tid, cut: &dyn Fn(&[u8]) -> Bytes) -> Step {
    match item {
        ChunkItem::Transaction { tid, status, user, description, extension } => {
            Step::Give(Item::Transaction(TransactionHead {
                tid,
                status: char::from(status),
                user: user.to_vec(),
                description: description.to_vec(),
                extension: Extension::Pickle(Bytes::copy_from_slice(extension)),
            }))
        }
        ChunkItem::Record { oid, data, data_tid } => {
            let data = data.map(cut);
            Step::Give(Item::Record(CommittedRecord { oid, tid: current, data, data_tid }))
        }
        ChunkItem::Skipped => Step::Give(Item::Skipped),
        ChunkItem::End => Step::End,
        ChunkItem::Object { .. } | ChunkItem::Following(_) => Step::Stray,
    }
}
