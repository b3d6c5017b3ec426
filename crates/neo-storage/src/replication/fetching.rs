//! The partition that is being replicated: which chunk was asked for, and what came of it.

use zodium_neo::messages::{AddObject, AddTransaction};
use zodium_neo::{Map, Partition};
use zodium_types::{Oid, Tid, TransactionMetadata};

use super::BackupSource;
use crate::ConnectionId;
use crate::commits::checked_data;
use crate::database::{NewRecord, PackRow, TransactionRecord};
use crate::handling::{Handled, Refusal};

/// The partition that is being replicated.
#[derive(Debug)]
pub(super) struct Current {
    /// Its number among all attempts.
    pub(super) attempt: u64,
    pub(super) partition: Partition,
    /// Up to this transaction.
    pub(super) tid: Tid,
    pub(super) connection: ConnectionId,
    pub(super) source: Option<BackupSource>,
    /// The request whose answer, and whose rows, are expected.
    pub(super) asked: Option<u32>,
    /// After the rows that the source was told of, if this node may have further ones: the answer
    /// says nothing of those.
    pub(super) untold: Option<(Tid, Oid)>,
    /// The last transaction of the cell: the source must have it as well.
    pub(super) common: Option<Tid>,
    /// The last transaction of which the cell has records: the source must have these as well.
    pub(super) common_record: Option<Tid>,
    /// While all records are compared: the last pack that the source may have carried out.
    pub(super) compares: Option<Tid>,
    /// Whether the first chunk was asked for.
    pub(super) has_begun: bool,
    /// What came since the last answer.
    pub(super) transactions: Vec<TransactionRecord>,
    pub(super) records: Vec<(Tid, NewRecord)>,
}

impl Current {
    /// Whether a row belongs to what was asked for. Others are of a replication that was given up.
    pub(super) fn expects(&self, connection: ConnectionId, id: u32) -> bool {
        self.connection == connection && self.asked == Some(id)
    }

    /// Where to go on after a chunk: where the source says, or after the rows that it was told of.
    pub(super) fn next(&mut self, of_source: Option<(Tid, Oid)>) -> Option<(Tid, Oid)> {
        let next = of_source.into_iter().chain(self.untold.take()).min();
        next.filter(|(tid, _)| *tid <= self.tid)
    }

    /// The transaction of this cell that the source lacks, if an answer says so: other transactions
    /// were committed there in its place.
    pub(super) fn lacking(&mut self, deleted: &[Tid]) -> Option<Tid> {
        self.common.take().filter(|common| deleted.contains(common))
    }

    /// The same of a transaction whose records are here.
    pub(super) fn lacking_record(&mut self, deleted: &Map<Tid, Vec<Oid>>) -> Option<Tid> {
        self.common_record.take().filter(|common| deleted.0.iter().any(|(tid, _)| tid == common))
    }

    /// Keeps a transaction for the next change. `limits_metadata`: a row holds no longer ones.
    pub(super) fn add_transaction(
        &mut self,
        message: AddTransaction<'_>,
        limits_metadata: bool,
    ) -> Handled {
        let AddTransaction { tid, user, description, extension, packed, ttid, oids, pack } =
            message;
        let metadata = TransactionMetadata {
            user: user.to_vec(),
            description: description.to_vec(),
            extension: extension.to_vec(),
        };
        if limits_metadata && let Err(error) = metadata.check() {
            return Err(Refusal::protocol(format!(
                "transaction {tid} does not fit into the tables of this node: {error}; give the \
                 partition to a node on SQLite"
            )));
        }
        let pack = pack.map(|pack| PackRow {
            id: tid,
            approved: pack.approved,
            oids: pack.partial.then(|| pack.oids.unwrap_or_default()),
            until: pack.tid,
        });
        let is_packed = packed;
        self.transactions.push(TransactionRecord { tid, ttid, oids, metadata, is_packed, pack });
        Ok(())
    }

    pub(super) fn add_record(&mut self, message: &AddObject<'_>) -> Handled {
        let AddObject { oid, serial, compression, checksum, data, data_serial } = *message;
        if i64::try_from(oid.0).is_err() || i64::try_from(serial.0).is_err() {
            return Err(Refusal::protocol("an id that is larger than 2^63 - 1"));
        }
        let is_deletion = data.is_empty() && checksum == zodium_neo::Checksum::ZERO;
        let data = match is_deletion {
            true => None,
            false => Some(checked_data(compression, checksum, data)?),
        };
        self.records.push((serial, NewRecord { oid, data, data_serial }));
        Ok(())
    }
}
