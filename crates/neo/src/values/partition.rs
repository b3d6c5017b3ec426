//! Numbers of partitions and of partition tables.

use std::fmt;

use zodium_types::{Oid, Tid};

use crate::wire::{Decode, Encode, Mismatch, Reader, Writer};

/// The number of a partition, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u32);

/// The id of a partition table (ptid): each change of the table has the next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u64);

impl Partition {
    /// In [`AskTIDs`](crate::messages::AskTIDs): all partitions that the storage can read.
    pub const ALL_READABLE: Partition = Partition(0xffff_ffff);

    /// The partition of an object; `None` without partitions.
    pub fn of_oid(oid: Oid, partitions: u32) -> Option<Partition> {
        Partition::of(oid.0, partitions)
    }

    /// The partition of a transaction's metadata; `None` without partitions.
    ///
    /// A transaction's temporary tid is of the same partition as its final one.
    pub fn of_tid(tid: Tid, partitions: u32) -> Option<Partition> {
        Partition::of(tid.0, partitions)
    }

    fn of(id: u64, partitions: u32) -> Option<Partition> {
        // The remainder is below a number of 32 bits.
        id.checked_rem(partitions.into()).map(|partition| Partition(partition as u32))
    }
}

impl TableId {
    /// The id of the table after one change.
    pub fn next(self) -> TableId {
        TableId(self.0.saturating_add(1))
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Encode for Partition {
    fn encode(&self, out: &mut Writer<'_>) {
        out.uint(self.0.into());
    }
}

impl Decode<'_> for Partition {
    fn decode(reader: &mut Reader<'_>) -> Result<Partition, Mismatch> {
        reader.int("a partition").map(Partition)
    }
}

impl Encode for TableId {
    fn encode(&self, out: &mut Writer<'_>) {
        out.uint(self.0);
    }
}

impl Decode<'_> for TableId {
    fn decode(reader: &mut Reader<'_>) -> Result<TableId, Mismatch> {
        reader.int("the id of a partition table").map(TableId)
    }
}
