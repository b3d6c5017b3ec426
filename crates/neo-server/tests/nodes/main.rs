//! A node over a real database, without sockets: the test is its master, its clients, its peers.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod backups;
mod barriers;
mod checking;
mod commits;
mod endings;
mod fetching;
mod holding;
mod hostile;
mod joining;
mod races;
mod remembering;
mod replication;
mod spooling;
mod support;
mod upkeep;
