//! Commits: begin, vote, lock, finish, abort.

use zodium_types::{Oid, Tid};

use super::packs::PackRequest;
use crate::values::{NodeId, Partition};
use crate::wire::record;

record! {
    /// Begins a transaction. C to M.
    pub struct AskBeginTransaction {
        /// The tid that it shall have, for an import; it must be later than all.
        tid: Option<Tid>,
    }

    /// The transaction has begun.
    pub struct AnswerBeginTransaction {
        /// Its temporary tid.
        ttid: Tid,
    }

    /// Asks for new oids. C to M.
    pub struct AskNewOIDs {
        /// How many.
        count: u32,
    }

    /// New oids.
    pub struct AnswerNewOIDs {
        /// The oids.
        oids: Vec<Oid>,
    }

    /// Stores the metadata of a transaction, and votes it. C to S.
    pub struct AskStoreTransaction<'a> {
        /// The transaction.
        ttid: Tid,
        /// The user.
        user: &'a [u8],
        /// The description.
        description: &'a [u8],
        /// The extension: a pickle, or nothing.
        extension: &'a [u8],
        /// All objects of the transaction, fewer than 2^21.
        oids: Vec<Oid>,
        /// The pack that the transaction orders.
        pack: Option<PackRequest>,
    }

    /// The transaction is voted: durable, and ready to be locked.
    pub struct AnswerStoreTransaction {}

    /// Votes a transaction at a storage that has objects of it, not its metadata. C to S.
    pub struct AskVoteTransaction {
        /// The transaction.
        ttid: Tid,
    }

    /// The transaction is voted.
    pub struct AnswerVoteTransaction {}

    /// Asks whether a transaction may be finished though storages failed. The answer is
    /// [`Ack`](crate::ErrorCode::Ack) or
    /// [`IncompleteTransaction`](crate::ErrorCode::IncompleteTransaction). C to M.
    pub struct FailedVote {
        /// The transaction.
        ttid: Tid,
        /// The storages that failed.
        failed: Vec<NodeId>,
    }

    /// Commits a voted transaction. C to M.
    pub struct AskFinishTransaction {
        /// The transaction.
        ttid: Tid,
        /// Objects created or changed, not those deleted.
        oids: Vec<Oid>,
        /// Partitions with deleted objects.
        deleted: Vec<Partition>,
        /// Partitions with objects whose serials were checked only.
        checked: Vec<Partition>,
        /// The pack that the transaction orders.
        pack: Option<PackRequest>,
    }

    /// The transaction is committed.
    pub struct AnswerTransactionFinished {
        /// The transaction.
        ttid: Tid,
        /// Its tid, of the same partition.
        tid: Tid,
    }

    /// Gives a voted transaction its tid, and locks its objects for reading. M to S.
    pub struct AskLockInformation {
        /// The transaction.
        ttid: Tid,
        /// Its tid.
        tid: Tid,
        /// Whether the pack that it orders is approved.
        pack_approved: bool,
    }

    /// The tid is durable, and the objects are locked.
    pub struct AnswerInformationLocked {
        /// The transaction.
        ttid: Tid,
    }

    /// Makes a locked transaction visible. M to S.
    pub struct NotifyUnlockInformation {
        /// The transaction.
        ttid: Tid,
    }

    /// Tells clients of a commit of others. M to C.
    pub struct InvalidateObjects {
        /// The transaction.
        tid: Tid,
        /// Objects changed, without deleted ones.
        oids: Vec<Oid>,
    }

    /// Tells masters of backup clusters of a commit. M to C.
    pub struct InvalidatePartitions {
        /// The transaction.
        tid: Tid,
        /// Partitions with objects changed or deleted, and that of the transaction.
        partitions: Vec<Partition>,
    }

    /// Drops a transaction. C to S, C to M, M to S.
    pub struct AbortTransaction {
        /// The transaction.
        ttid: Tid,
        /// To the master: the storages that it shall tell.
        nodes: Vec<NodeId>,
    }
}
