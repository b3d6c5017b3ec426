//! Writes transactions: reserves their space, appends them to the log, publishes them, and goes on
//! after a failed write.

mod append_state;
mod appended;
mod appender;
mod back_pointers;
mod batch_writer;
mod foreign_appends;
mod foreign_change;
mod oids;
mod preparation;
mod prepared;
mod recent;
mod reopening;
mod sizes;
mod suspension;

pub(crate) use append_state::{AppendState, WriteFailure};
pub use appended::Appended;
pub(crate) use appender::Appender;
pub(crate) use oids::Oids;
pub use prepared::PreparedTransaction;
pub(crate) use suspension::Suspension;
