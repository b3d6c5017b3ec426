//! Where the rows of a voted transaction are until its end.

use zodium_neo::Partition;
use zodium_types::Oid;

use super::Kept;
use crate::database::NewTransaction;

/// Where the rows of a voted transaction are.
#[derive(Debug, Default)]
pub(crate) enum Rows {
    /// The vote has written them, durably. The lock writes the tid, and the unlock commits.
    #[default]
    Voted,
    /// The vote has written them. They need not be durable until the lock, which commits.
    Unsynced,
    /// In memory until the lock, which writes them and commits.
    Held(Held),
    /// The lock commits them now.
    Committing,
    /// Committed. No read sees them before the unlock.
    Committed,
}

/// Rows that are not written yet.
#[derive(Debug)]
pub(crate) struct Held {
    /// Stored objects with their data; without data, a deletion.
    pub(crate) records: Vec<(Oid, Option<Kept>)>,
    /// `None`: its cell was taken away.
    pub(crate) transaction: Option<NewTransaction>,
    /// The partition of the metadata.
    pub(crate) partition: Partition,
}

impl Rows {
    /// Forgets what is held of partitions.
    pub(super) fn discard(&mut self, partitions: &[Partition], is_in: impl Fn(Oid) -> bool) {
        let Rows::Held(held) = self else { return };
        held.records.retain(|(oid, _)| !is_in(*oid));
        if partitions.contains(&held.partition) {
            held.transaction = None;
        }
    }

    /// Whether rows of the transaction may be in the database, not committed.
    pub(crate) fn are_voted(&self) -> bool {
        matches!(self, Rows::Voted | Rows::Unsynced)
    }
}
