//! Simulates the server with clients, networks, disks and clocks; a seed decides everything.
//!
//! Engine, file, protocol and links are the real ones, on one thread and without sockets. The same
//! seed gives the same run, byte for byte, so a failure can be reproduced. What clients see is
//! compared with a history that an independent reader reads from the file.
//!
//! - `world`: the run and its faults; `plan`: which faults a seed includes;
//! - `server`, `pipe`: the real server on simulated links; `client`, `workload`: its clients;
//! - `stage`: the same server by hand, for tests of what happens between two messages;
//! - `history`, `log_reader`: the ground truth; `witness`: checks while commits are announced;
//! - `fault_injector`: a faulty server, to test the checks; `coverage`: what has to happen in runs;
//! - `neo/`: a NEO cluster of real storage nodes, with real masters or a model, and model clients;
//! - `resp/`: Redis clients of the RESP server, beside a model of its keyspace.
//!
//! Must not be used by the server.

#![forbid(unsafe_code)]

mod client;
mod counts;
mod coverage;
mod fault_injector;
mod history;
mod log_reader;
mod neo;
mod pipe;
mod plan;
mod random;
mod record;
mod resp;
mod run;
mod server;
pub mod stage;
mod trace;
mod witness;
mod workload;
mod world;

pub use counts::Counts;
pub use neo::{
    ClusterBug, ClusterCounts, ClusterMasters, ClusterOptions, ClusterReport, run_cluster,
};
pub use plan::InjectedBug;
pub use resp::{RespBug, RespOptions, lacking_of_resp, run_resp};
pub use run::{Options, Report, Violation, run};
pub use trace::Events;
