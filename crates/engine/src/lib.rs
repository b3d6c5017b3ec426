//! The engine: transactions, their locks and their order, over any storage.

pub mod commit;
