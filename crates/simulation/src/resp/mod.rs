//! Simulates Redis clients of the RESP server, beside a model of the keyspace.
//!
//! Sessions, commands, transactions, waiting and publishing are those of `zodium resp`, on workers
//! of one thread and without sockets. Several clients have requests at the server at once, and the
//! workers run in any order. The order in which the sessions execute requests is recorded; the
//! model executes them in that order. What each client is sent must be what the model answers, byte
//! for byte, with messages at a right place between the answers. The same seed gives the same run.
//!
//! - `world`: the server and its clients, step by step; `peer`: a client's connection;
//! - `workers`, `recorder`, `storage`: the real server, what it executes, and its storage;
//! - `plan`: what a run is about; `request`: what clients send;
//! - `model/`: what they are to be answered; `reply`, `stream`: as bytes, and in which order;
//! - `faulty`: a faulty server, to test the checks; `run`: a run from start to end.

mod faulty;
mod model;
mod peer;
mod plan;
mod recorder;
mod reply;
mod request;
mod run;
mod storage;
mod stream;
mod workers;
mod world;

pub use plan::RespBug;
pub use run::{RespOptions, lacking_of_resp, run_resp};
