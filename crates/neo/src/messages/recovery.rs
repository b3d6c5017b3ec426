//! The start of a cluster: what the master asks storages before it runs.

use zodium_types::{Oid, Tid};

use crate::values::{Partition, TableId};
use crate::wire::{Map, record};

record! {
    /// Asks for the state of a storage's database. M to S, ctl to A to M.
    pub struct AskRecovery {}

    /// The state of a database.
    pub struct AnswerRecovery {
        /// The id of its partition table.
        table: Option<TableId>,
        /// Of a backup cluster: the last transaction that is complete.
        backup_tid: Option<Tid>,
        /// The database is to be cut after this transaction before it is used.
        truncate_tid: Option<Tid>,
    }

    /// Asks for the first and last ids in a database. M to S, ctl to A to M.
    pub struct AskLastIDs {}

    /// The first and last ids in the readable partitions of a database.
    pub struct AnswerLastIDs {
        /// The last transaction.
        last_tid: Option<Tid>,
        /// The last object.
        last_oid: Option<Oid>,
        /// The first transaction; [`Tid::MAX`] if there is none.
        first_tid: Tid,
    }

    /// Asks for transactions that were voted and not committed, or not unlocked. M to S.
    pub struct AskLockedTransactions {}

    /// Transactions that were voted.
    pub struct AnswerLockedTransactions {
        /// By ttid, the tid that the storage has locked it with.
        transactions: Map<Tid, Option<Tid>>,
    }

    /// Asks whether a transaction was committed. M to S, C to M, C to S.
    pub struct AskFinalTID {
        /// The transaction.
        ttid: Tid,
    }

    /// The outcome of a transaction.
    pub struct AnswerFinalTID {
        /// Its tid; `None` if it was not committed. A master that does not know says
        /// [`Tid::MAX`]: then the storages do.
        tid: Option<Tid>,
    }

    /// Commits a voted transaction that was not unlocked. M to S.
    pub struct ValidateTransaction {
        /// The transaction.
        ttid: Tid,
        /// Its tid.
        tid: Tid,
    }

    /// Asks for the transactions in progress, before replication of partitions. From now on the
    /// storage gets the new ones. S to M.
    pub struct AskUnfinishedTransactions {
        /// The partitions.
        partitions: Vec<Partition>,
    }

    /// The transactions in progress.
    pub struct AnswerUnfinishedTransactions {
        /// The last committed transaction: replication goes that far first.
        max_tid: Tid,
        /// The transactions in progress; the end of each is notified.
        ttids: Vec<Tid>,
    }

    /// A transaction of [`AnswerUnfinishedTransactions`] was committed. M to S.
    pub struct NotifyTransactionFinished {
        /// The transaction.
        ttid: Tid,
        /// Replication must go that far.
        max_tid: Tid,
    }
}
