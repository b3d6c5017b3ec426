//! Writes transactions: reserves their space, appends them to the log, publishes them, and goes on
//! after a failed write.

mod append;
mod back_pointers;
mod foreign_change;
mod recent;
mod reopening;

pub(crate) use append::{AppendState, Suspension, WriteFailure};
pub use append::{Appended, NewBody, NewRecord, NewTransaction, Reservation};
pub(crate) use back_pointers::{BackPointers, PointsBack};
