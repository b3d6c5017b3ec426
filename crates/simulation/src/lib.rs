//! The server under simulated clients, networks, disks and clocks, all of it decided by a seed.
//!
//! Engine, file, protocol and links are the real ones, on one thread and without sockets. The same
//! seed gives the same run, byte for byte, so a failure can be looked at again. What clients see is
//! held against a history that is read from the file by a reader of its own.
//!
//! - `world`: the run, and what goes wrong in it; `plan`: what each seed leaves out;
//! - `server`, `pipe`: the real server on simulated links; `client`, `workload`: who uses it;
//! - `stage`: the same server by hand, for tests of what happens between two messages;
//! - `history`, `log_reader`: what is true; `witness`: what holds while commits are announced;
//! - `fault_injector`: a wrong server, to test the checks.
//!
//! Must not be used by the server.

#![forbid(unsafe_code)]

mod client;
mod counts;
mod fault_injector;
mod history;
mod log_reader;
mod pipe;
mod plan;
mod random;
mod record;
mod run;
mod server;
pub mod stage;
mod trace;
mod witness;
mod workload;
mod world;

pub use counts::Counts;
pub use plan::InjectedBug;
pub use run::{Options, Report, Violation, run};
