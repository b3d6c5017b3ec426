//! The numbers of transactions.

/// Names a transaction from its vote to its end: the owner of its locks. The engine counts up and
/// never gives a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionNumber(pub u64);
