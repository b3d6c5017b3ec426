//! Tests of the client from outside, in one program: it links once.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod addresses;
mod blobs;
mod calls;
mod client;
mod commits;
mod common;
mod database;
mod forks;
mod kept_cache;
mod log;
mod outcomes;
mod round_trips;
mod scripted;
mod server_storage;
mod stock_log;
mod threads;
mod two_protocols;
mod warm_up;
