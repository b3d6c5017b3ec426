//! Writes transactions: reserves their space, appends them to the log, publishes them, and goes on
//! after a failed write.

mod append_state;
mod appended;
mod appender;
mod back_pointers;
mod batch_writer;
mod foreign_change;
mod new_transaction;
mod oids;
mod recent;
mod reopening;
mod suspension;

pub(crate) use append_state::{AppendState, WriteFailure};
pub use appended::Appended;
pub(crate) use appender::Appender;
pub use appender::Reservation;
pub(crate) use back_pointers::PointsBack;
pub use new_transaction::{NewBody, NewRecord, NewTransaction};
pub(crate) use oids::Oids;
pub(crate) use suspension::Suspension;
