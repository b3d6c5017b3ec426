//! Reads that the parts of a storage share.

use bytes::Bytes;
use rustc_hash::FxHashSet;
use zodium_storage::Transaction;
use zodium_types::{Oid, Tid, TransactionStatus};

use super::view::View;
use crate::driver::{self, Connection};
use crate::packing::{self, Order};
use crate::partitions::Partitions;
use crate::place::Place;
use crate::{RevisionRow, SqlError, TransactionRow, revisions, transactions};

/// The data of a revision; `None` for a deletion.
pub(super) fn data_of(
    place: &Place,
    oid: Oid,
    row: RevisionRow,
) -> Result<Option<Bytes>, SqlError> {
    let damaged =
        |what| SqlError::DamagedData { path: place.path().to_owned(), oid, tid: row.serial, what };
    let data = row.data.map(|data| data.into_data().map_err(damaged)).transpose()?;
    Ok(data.map(Bytes::from))
}

/// A transaction with some of its objects left, or without objects. A pack leaves the rows of
/// those of which it has taken all records: they are none any more.
pub(super) fn transaction(
    connection: &Connection,
    partitions: Partitions,
    tid: Tid,
) -> driver::Result<Option<TransactionRow>> {
    let row = transactions::read(connection, partitions.of_tid(tid), tid)?;
    let Some(row) = row else { return Ok(None) };
    let mut has_records = row.oids.is_empty();
    for oid in &row.oids {
        has_records = has_records
            || revisions::data_id(connection, partitions.of_oid(*oid), *oid, tid)?.is_some();
    }
    Ok(has_records.then_some(row))
}

/// The transaction whose record this one points back to, if that one is still there.
pub(super) fn source(
    connection: &Connection,
    partitions: Partitions,
    oid: Oid,
    value_tid: Option<Tid>,
) -> driver::Result<Option<Tid>> {
    let Some(tid) = value_tid else { return Ok(None) };
    let found = revisions::data_id(connection, partitions.of_oid(oid), oid, tid)?;
    Ok(found.map(|_| tid))
}

/// What was packed, by this program or by a NEO cluster.
#[derive(Debug, Default)]
pub(super) struct Packs {
    until: Tid,
    partial: Vec<(Tid, FxHashSet<Oid>)>,
}

impl Packs {
    pub(super) fn read(connection: &Connection) -> driver::Result<Packs> {
        let mut packs = Packs::default();
        for Order { until, oids } in packing::orders(connection)? {
            match oids {
                Some(oids) => packs.partial.push((until, oids.into_iter().collect())),
                None => packs.until = packs.until.max(until),
            }
        }
        Ok(packs)
    }

    pub(super) fn of(view: &View) -> Result<Packs, SqlError> {
        view.read("read the orders to pack", Packs::read)
    }

    /// The latest time to which all objects were packed.
    pub(super) fn until(&self) -> Tid {
        self.until
    }

    /// The status of a transaction.
    pub(super) fn status(&self, row: &TransactionRow) -> TransactionStatus {
        match row.is_packed || row.tid <= self.until {
            true => TransactionStatus::Packed,
            false => TransactionStatus::Normal,
        }
    }

    /// Whether revisions before a transaction's may be gone.
    pub(super) fn reach(&self, row: &TransactionRow) -> bool {
        let is_listed = |(until, oids): &(Tid, FxHashSet<Oid>)| {
            row.tid <= *until && row.oids.iter().any(|oid| oids.contains(oid))
        };
        self.status(row) == TransactionStatus::Packed || self.partial.iter().any(is_listed)
    }

    /// A transaction as callers see it. Its length would cost a look at each of its records.
    pub(super) fn transaction(&self, row: TransactionRow) -> Transaction {
        let status = self.status(&row);
        let TransactionRow { tid, metadata, .. } = row;
        Transaction { tid, status, metadata, length: 0 }
    }
}
