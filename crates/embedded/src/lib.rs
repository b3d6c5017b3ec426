//! A storage of this process with the interface of a client: what a program does with a storage on
//! a server, it does here without the server.
//!
//! Key decision: the engine decides about commits, as in a server, and the ZEO server's own
//! functions answer the other calls. So an application meets the same behaviour either way.

#![forbid(unsafe_code)]

mod client;
mod events;
mod failure;
mod log;
mod transaction;

pub use client::{EmbeddedClient, EmbeddedOptions, loaded};
pub use failure::of_storage;
pub use log::EmbeddedLog;
pub use transaction::EmbeddedTransaction;
