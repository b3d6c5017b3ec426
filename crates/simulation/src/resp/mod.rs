//! Simulates Redis clients of the RESP server, beside a model of the keyspace.
//!
//! Sessions, commands, transactions, waiting and publishing are those of `zodium resp`, on three
//! workers of one thread and without sockets. The model executes one command after the other. What
//! each client is sent must be what the model answers, byte for byte. The same seed gives the same
//! run.
//!
//! - `world`: the server and its clients, step by step; `peer`: a client's connection;
//! - `request`: what clients send; `model`: what they are to be answered;
//! - `run`: a run from start to end.

mod model;
mod peer;
mod request;
mod run;
mod world;

pub use run::{RespOptions, lacking_of_resp, run_resp};
