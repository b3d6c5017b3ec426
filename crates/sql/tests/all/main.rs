//! Tests of the storage in SQLite.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod claims;
mod crashes;
mod iterators;
mod maria;
mod moved;
mod neoppod;
mod opening;
mod packing;
mod support;
mod walks;
