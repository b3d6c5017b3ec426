//! The words every other crate speaks: object ids, transaction ids, transaction metadata,
//! addresses, metrics, memory held.
//!
//! No I/O, no allocation beyond what a value holds, no knowledge of files or wires.
//! On disk and on the wire both ids are 8 bytes, big-endian.

#![forbid(unsafe_code)]

mod address;
mod ids;
mod memory;
mod metrics;
mod time;
mod transaction;

pub use address::{Address, AddressError};
pub use ids::{Oid, Tid};
pub use memory::{Held, Memory, Turn};
pub use metrics::{BUCKETS, Counter, Distribution, Durations, Histogram, Sizes};
pub use time::CalendarTime;
pub use transaction::{MetadataTooLong, TransactionMetadata, TransactionStatus};
