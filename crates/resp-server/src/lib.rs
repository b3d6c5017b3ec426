//! A RESP server on the workers of `zodium-net`: sessions, commands, transactions, waiting clients,
//! and publishing.
//!
//! Key decision: the worker that reads a request executes it, under the locks of its keys, and
//! appends the answer to the link's output. Only news for clients of other workers, such as a
//! published message or an element for a client that waits, go through the other worker's inbox.

#![forbid(unsafe_code)]

mod batch;
mod beside;
mod call;
mod client;
mod clients;
mod commands;
mod dispatch;
mod durability;
mod events;
mod eviction_policy;
mod expiry;
mod fail;
mod figures;
mod glob;
mod idle;
mod json;
mod local;
mod locking;
mod memory;
mod monitoring;
mod objects;
mod parked;
mod parting;
mod pause;
mod pausing;
mod publishing;
mod quick;
mod reply;
mod scripting;
mod server;
mod service;
mod session;
mod settings;
mod statistics;
mod storages;
mod stream;
#[cfg(test)]
mod tests;
mod ties;
mod tracked;
mod tracking;
mod transaction;
mod unanswered;
mod waiting;
mod worker_clock;
mod zexec;

use client::Client;
use commands::Command;
use dispatch::After;
use local::{Letter, LocalServer};
use waiting::Waiter;

pub use durability::{DumpedKey, ImportError, KeeperOptions, LeftOut, LoadReport, manifest_parts};
pub use figures::Figures;
pub use server::{Options, Server};
pub use service::RespService;
pub use storages::{Commit, Loaded, Storages};
pub use zodium_resp::split_line;
