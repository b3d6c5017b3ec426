//! Types that all other crates share: object ids, transaction ids, transaction metadata,
//! addresses, metrics, and the memory limit.
//!
//! This crate does no I/O, and knows neither files nor protocols.

#![forbid(unsafe_code)]

mod address;
mod ids;
mod memory;
mod metrics;
mod time;
mod transaction;

pub use address::{Address, AddressError};
pub use ids::{Oid, Tid, fix_oid_hashes};
pub use memory::{Held, Memory, Turn};
pub use metrics::{BUCKETS, Counter, Distribution, Durations, Histogram, Sizes};
pub use time::CalendarTime;
pub use transaction::{MetadataTooLong, TransactionMetadata, TransactionStatus};
