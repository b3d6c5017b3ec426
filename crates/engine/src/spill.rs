//! Keeps large transactions out of memory: data beyond a limit move to a spool file.
//!
//! After each store, the session that collects the transaction asks for a [`Spill`]. It runs the
//! spill off the worker, and accepts no more stores until it has given back the result.

use bytes::Bytes;
use zodium_storage::{Access, Spool, SpooledData, StorageError, Write};

use crate::Transaction;

/// Data of one write.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Memory(Bytes),
    Spooled(SpooledData),
}

/// The data of a transaction in memory and in its spool.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    memory_bytes: u64,
    spool: Option<Spool>,
}

/// Data on their way to the spool.
#[derive(Debug)]
pub struct Spill {
    spool: Option<Spool>,
    /// The index of the write in the transaction, and its data.
    data: Vec<(usize, Bytes)>,
}

/// Data written to the spool, for [`Transaction::spilled`].
#[derive(Debug)]
pub struct Spilled {
    spool: Spool,
    data: Vec<(usize, SpooledData)>,
}

impl Data {
    /// The bytes; `None` when they are in a spool and access is non-blocking.
    pub(crate) fn bytes(&self, access: Access) -> Result<Option<Bytes>, StorageError> {
        match (self, access) {
            (Data::Memory(bytes), _) => Ok(Some(bytes.clone())),
            (Data::Spooled(_), Access::NonBlocking) => Ok(None),
            (Data::Spooled(spooled), Access::Blocking) => spooled.read().map(Some),
        }
    }

    /// Their length; that of data in a spool is known without a read.
    pub(crate) fn length(&self) -> usize {
        match self {
            Data::Memory(bytes) => bytes.len(),
            Data::Spooled(spooled) => spooled.length() as usize,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length() == 0
    }
}

impl Kept {
    /// Data in memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        usize::try_from(self.memory_bytes).unwrap_or(usize::MAX)
    }

    /// Counts data that a transaction keeps in memory.
    pub(crate) fn hold(&mut self, data: Bytes) -> Data {
        self.memory_bytes += data.len() as u64;
        Data::Memory(data)
    }
}

impl Transaction {
    /// The data to move to the spool before the transaction takes more; `None` while at most
    /// `memory_bytes_max` of its data are in memory.
    pub fn spill(&mut self, memory_bytes_max: usize) -> Option<Spill> {
        if self.kept.memory_bytes <= memory_bytes_max as u64 {
            return None;
        }
        let mut data = Vec::new();
        for (place, write) in self.writes.iter_mut().enumerate() {
            if let Some(Data::Memory(bytes)) = write.body.data_mut() {
                data.push((place, bytes.clone()));
            }
        }
        Some(Spill { spool: self.kept.spool.take(), data })
    }

    /// Replaces the spilled data by their places in the spool. No data may have been stored since
    /// [`Transaction::spill`].
    pub fn spilled(&mut self, spilled: Spilled) {
        for (place, spooled) in spilled.data {
            let data = self.writes.get_mut(place).and_then(|write| write.body.data_mut());
            if let Some(data) = data {
                *data = Data::Spooled(spooled);
            }
        }
        self.kept = Kept { memory_bytes: 0, spool: Some(spilled.spool) };
    }
}

impl Spill {
    /// Writes the data to the transaction's spool. Blocking.
    pub(crate) fn run(self, store: &dyn Write) -> Result<Spilled, StorageError> {
        let mut spool = match self.spool {
            Some(spool) => spool,
            None => store.new_spool()?,
        };
        let mut data = Vec::with_capacity(self.data.len());
        for (place, bytes) in self.data {
            data.push((place, spool.append(&bytes)?));
        }
        spool.flush()?;
        Ok(Spilled { spool, data })
    }
}
