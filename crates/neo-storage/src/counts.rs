//! What a node has done since its start.

/// What a node has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects that were loaded for clients.
    pub loads: u64,
    /// Of these, those that were answered from memory.
    pub remembered_loads: u64,
    /// Records that clients have sent, with repeated ones.
    pub stores: u64,
    /// Transactions that were voted.
    pub votes: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Of these, those that were written at their lock only.
    pub held_commits: u64,
    /// Transactions that were given up.
    pub aborts: u64,
    /// Objects that had changed since the client read them.
    pub conflicts: u64,
    /// Locks that clients were asked to give back.
    pub deadlocks: u64,
    /// Transactions that were fetched from other storages.
    pub fetched_transactions: u64,
    /// Records that were fetched from other storages.
    pub fetched_records: u64,
    /// Bytes of transactions and records that were sent to other storages.
    pub fed_bytes: u64,
    /// Partitions whose replicas were compared to the end.
    pub checked_partitions: u64,
    /// Cells that differed from the reference, or from one another.
    pub differing_cells: u64,
}
