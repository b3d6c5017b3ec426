//! The data of a transaction until its vote: in memory, and in a spool when they are many.
//!
//! While data move to the spool, further stores of the transaction wait. A client sends only so
//! much before it waits for answers, so memory has a bound.

use std::sync::Arc;

use zodium_types::Oid;

use super::LockRequest;
use crate::database::{Data, ReadResult, Reads, Spool, Spooled};

/// Data that a transaction stores.
#[derive(Debug)]
pub(crate) enum Kept {
    Memory(Arc<Data>),
    Spooled(Box<dyn Spooled>),
}

/// What is known of the data of a transaction that is not voted.
#[derive(Debug, Default)]
pub(crate) struct Unvoted {
    /// Bytes that were stored since data were moved last: no more are in memory, but those that
    /// are being moved.
    bytes: usize,
    spool: Option<Box<dyn Spool>>,
    move_under_way: Option<Move>,
}

/// A move to the spool that is under way.
#[derive(Debug)]
struct Move {
    /// Its number: a transaction may have ended meanwhile, and begun anew.
    number: u64,
    bytes: usize,
    /// Stores that came since.
    delayed: Vec<LockRequest>,
}

/// Data on their way to the spool.
#[derive(Debug)]
pub(crate) struct Moving {
    spool: Option<Box<dyn Spool>>,
    data: Vec<(Oid, Arc<Data>)>,
}

/// Data that are in the spool.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(super) spool: Box<dyn Spool>,
    /// By object: what was moved, and where it is now.
    pub(super) data: Vec<(Oid, Arc<Data>, Box<dyn Spooled>)>,
}

impl Kept {
    pub(crate) fn new(data: Data) -> Kept {
        Kept::Memory(Arc::new(data))
    }

    /// The data; blocking if they are in a spool.
    pub(crate) fn into_data(self) -> ReadResult<Data> {
        match self {
            Kept::Memory(data) => Ok(Arc::unwrap_or_clone(data)),
            Kept::Spooled(data) => data.read(),
        }
    }
}

impl Unvoted {
    /// Counts data that are kept in memory.
    pub(super) fn add(&mut self, kept: &Kept) {
        if let Kept::Memory(data) = kept {
            self.bytes += data.bytes.len();
        }
    }

    /// The bytes in memory at most.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes + self.move_under_way.as_ref().map_or(0, |under_way| under_way.bytes)
    }

    /// Whether data should be moved: more than these bytes are in memory, and none are moved now.
    pub(crate) fn is_full(&self, bytes_max: usize) -> bool {
        self.bytes > bytes_max && self.move_under_way.is_none()
    }

    /// Begins to move these data, which are all that are in memory.
    pub(super) fn begin(&mut self, number: u64, data: Vec<(Oid, Arc<Data>)>) -> Moving {
        let bytes = std::mem::take(&mut self.bytes);
        self.move_under_way = Some(Move { number, bytes, delayed: Vec::new() });
        Moving { spool: self.spool.take(), data }
    }

    /// Has a store wait while data are moved; otherwise it comes back.
    pub(crate) fn delay(&mut self, request: LockRequest) -> Option<LockRequest> {
        match &mut self.move_under_way {
            Some(under_way) => {
                under_way.delayed.push(request);
                None
            }
            None => Some(request),
        }
    }

    /// Whether stores wait.
    pub(crate) fn delays(&self) -> bool {
        self.move_under_way.as_ref().is_some_and(|under_way| !under_way.delayed.is_empty())
    }

    /// Ends the move of this number, if it is under way.
    pub(crate) fn end(&mut self, number: u64) -> Option<Vec<LockRequest>> {
        let under_way = self.move_under_way.take_if(|under_way| under_way.number == number);
        under_way.map(|under_way| under_way.delayed)
    }

    /// The stores that wait, of a transaction that is over.
    pub(crate) fn into_delayed(self) -> Vec<LockRequest> {
        self.move_under_way.map(|under_way| under_way.delayed).unwrap_or_default()
    }

    /// Whether no data are in a spool, or on their way there.
    pub(super) fn is_in_memory(&self) -> bool {
        self.spool.is_none() && self.move_under_way.is_none()
    }

    /// Forgets data and spool: what there is, is on its way to the database.
    pub(crate) fn clear(&mut self) {
        (self.bytes, self.spool) = (0, None);
    }

    /// Keeps the spool for the next move.
    pub(super) fn keep_spool(&mut self, spool: Box<dyn Spool>) {
        self.spool = Some(spool);
    }
}

impl Moving {
    /// Writes the data to the spool. Blocking.
    pub(crate) fn run(self, database: &dyn Reads) -> ReadResult<Moved> {
        let mut spool = match self.spool {
            Some(spool) => spool,
            None => database.new_spool()?,
        };
        let mut moved = Vec::with_capacity(self.data.len());
        for (oid, data) in self.data {
            let spooled = spool.put(&data)?;
            moved.push((oid, data, spooled));
        }
        spool.flush()?;
        Ok(Moved { spool, data: moved })
    }
}
