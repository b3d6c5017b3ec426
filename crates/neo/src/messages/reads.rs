//! Reads of clients: objects, transactions, history.

use zodium_types::{Oid, Tid};

use crate::values::{Checksum, Partition};
use crate::wire::record;

record! {
    /// Asks for an object: the current record if neither tid is given. C to S.
    pub struct AskObject {
        /// The object.
        oid: Oid,
        /// The record of this serial.
        at: Option<Tid>,
        /// The last record before this transaction.
        before: Option<Tid>,
    }

    /// A record of an object.
    ///
    /// A deletion has no data, and [`Checksum::ZERO`].
    pub struct AnswerObject<'a> {
        /// The object.
        oid: Oid,
        /// The serial of the record.
        serial: Tid,
        /// The serial of the next record; `None` if this one is current.
        next_serial: Option<Tid>,
        /// How the data are compressed: 0 not, 1 with zlib. Deletions may have `None`.
        compression: Option<u8>,
        /// The SHA-1 of the data as they are here.
        checksum: Checksum,
        /// The data, compressed.
        data: &'a [u8],
        /// Of an undo: the transaction that stored the data.
        data_serial: Option<Tid>,
    }

    /// Asks for the last transactions. C to S.
    pub struct AskTIDs {
        /// How many of the last transactions are skipped.
        first: i64,
        /// The number of transactions up to the end of the answer, those skipped included.
        end: i64,
        /// Of this partition, or [`Partition::ALL_READABLE`].
        partition: Partition,
    }

    /// Transactions.
    pub struct AnswerTIDs {
        /// The tids, the last one first.
        tids: Vec<Tid>,
    }

    /// Asks for the metadata of a transaction. C to S.
    pub struct AskTransactionInformation {
        /// The transaction.
        tid: Tid,
    }

    /// The metadata of a transaction.
    pub struct AnswerTransactionInformation<'a> {
        /// The transaction.
        tid: Tid,
        /// The user.
        user: &'a [u8],
        /// The description.
        description: &'a [u8],
        /// The extension: a pickle, or nothing.
        extension: &'a [u8],
        /// Whether records of it may have been packed.
        packed: bool,
        /// All objects of the transaction.
        oids: Vec<Oid>,
    }

    /// Asks for the records of an object. C to S.
    pub struct AskObjectHistory {
        /// The object.
        oid: Oid,
        /// How many of the last records are skipped.
        first: i64,
        /// The number of records up to the end of the answer, those skipped included.
        end: i64,
    }

    /// Records of an object.
    pub struct AnswerObjectHistory {
        /// The object.
        oid: Oid,
        /// The records, the last one first.
        records: Vec<HistoryRecord>,
    }

    /// A record of an object.
    #[derive(Copy, Eq)]
    pub struct HistoryRecord {
        /// Its serial.
        serial: Tid,
        /// Bytes of its data, compressed.
        size: u64,
    }

    /// Asks for transactions of a partition, from one on. C to S.
    pub struct AskTIDsFrom {
        /// The first transaction.
        min_tid: Tid,
        /// The last transaction.
        max_tid: Tid,
        /// Most transactions of the answer.
        length: u32,
        /// The partition.
        partition: Partition,
    }

    /// Transactions of a partition.
    pub struct AnswerTIDsFrom {
        /// The tids, ascending.
        tids: Vec<Tid>,
    }

    /// Asks for the objects of a partition that are not deleted. C to S.
    pub struct AskOIDsFrom {
        /// The partition.
        partition: Partition,
        /// Most objects of the answer.
        length: u32,
        /// The first object.
        min_oid: Oid,
        /// Objects as of this transaction.
        tid: Tid,
    }

    /// Objects of a partition.
    pub struct AnswerOIDsFrom {
        /// Where to go on; `None` at the end.
        next_oid: Option<Oid>,
        /// The oids, ascending.
        oids: Vec<Oid>,
    }
}
