//! The numbers of transactions.

/// Identifies a transaction, the owner of its locks, from its vote to its end. The engine counts up
/// and never reuses a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionNumber(pub u64);
