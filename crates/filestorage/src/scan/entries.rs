//! What a scan finds.

use zodium_types::{Tid, TransactionStatus};

use crate::format::{DataHeader, POINTER_BYTES, TransactionHeader};

/// A transaction found by a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionEntry {
    pub(crate) position: u64,
    pub(crate) header: TransactionHeader,
}

impl TransactionEntry {
    pub(crate) fn records_start(&self) -> u64 {
        self.position + self.header.records_offset()
    }

    /// End of the data records; the copy of the length follows.
    pub(crate) fn records_end(&self) -> u64 {
        self.position + self.header.length
    }

    pub(crate) fn next_position(&self) -> u64 {
        self.records_end() + POINTER_BYTES
    }

    pub(crate) fn status(&self) -> Option<TransactionStatus> {
        TransactionStatus::from_byte(self.header.status)
    }

    pub(crate) fn tid(&self) -> Tid {
        self.header.tid
    }
}

/// A data record found by a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataEntry {
    pub(crate) position: u64,
    pub(crate) header: DataHeader,
}

/// The finding of a scan at a position.
#[derive(Debug)]
pub(crate) enum Step {
    Transaction(TransactionEntry),
    /// The end of the scan.
    End,
    /// The file ends within the transaction that begins here, or it was voted and not finished.
    Unfinished,
}
