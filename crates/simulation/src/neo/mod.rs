//! Simulates a NEO cluster: real storage nodes with real databases, a model master, model clients.
//!
//! Nodes and databases are those of `zodium neo storage`, on one thread and without sockets. The
//! master and the clients are models: they do what the protocol asks of them, and know what is
//! right. The same seed gives the same run.
//!
//! - `world`: the run and its faults; `plan`: which faults a seed includes;
//! - `net`: connections, with packets in order; `storage`: a process with a node and its database;
//! - `master/`, `client/`: the models;
//! - `history`: what was committed; `judge`: what must hold in the end;
//! - `faulty`: faulty nodes, to test the checks.

mod client;
mod context;
mod counts;
mod faulty;
mod history;
mod judge;
mod master;
mod net;
mod plan;
mod run;
mod storage;
mod world;

pub use counts::ClusterCounts;
pub use plan::ClusterBug;
pub use run::{ClusterOptions, ClusterReport, run_cluster};
