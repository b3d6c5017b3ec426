//! Admins without sockets: what they answer, relay and report.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod backups;
mod masters;
mod notes;
mod operators;
mod support;
