//! Masters with scripted storages, clients and admins, and with each other.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod backups;
mod commands;
mod commits;
mod elections;
mod foreign;
mod old_copies;
mod recoveries;
mod simulation;
mod starts;
mod support;
mod tables;
mod troubles;
