//! Simulates a NEO cluster: real storage nodes with real databases, real or model masters, model
//! clients.
//!
//! Nodes and databases are those of `zodium neo storage`, on one thread and without sockets. The
//! clients are models: they do what the protocol asks of them. So is the master, which knows what
//! is right; or there are those of `zodium neo master`, whose decisions are watched. The same seed
//! gives the same run.
//!
//! - `world`: the run and its faults; `plan`: which faults a seed includes;
//! - `net`, `wires`: connections, with packets in order; `storage`: a process with a node and its
//!   database;
//! - `master/`, `client/`: the models; `masters/`: the real masters, and an operator;
//! - `history`: what was committed; `judge`: what must hold in the end;
//! - `faulty`: faulty nodes, to test the checks.

mod addresses;
mod client;
mod context;
mod counts;
mod faulty;
mod history;
mod judge;
mod master;
mod masters;
mod net;
mod plan;
mod run;
mod storage;
mod wires;
mod world;

pub use counts::ClusterCounts;
pub use plan::{ClusterBug, ClusterMasters};
pub use run::{ClusterOptions, ClusterReport, run_cluster};
