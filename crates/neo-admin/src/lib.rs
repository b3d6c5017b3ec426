//! The admin of a NEO cluster as a state machine: no sockets, no clock, no threads.
//!
//! Operators' commands connect to an admin. It follows the primary master, answers what it knows
//! from it (nodes, partition table, state), and relays everything else to it. The admins of a
//! cluster and of its backups tell each other how their clusters are.
//!
//! An [`Admin`] is told what happens: connections open and close, packets arrive, time passes. It
//! answers with [`Output`]s: addresses to dial, bytes to send, connections to close.
//!
//! Key decision: what an operator sees is NEO/py's to the byte, the order of cells and all texts
//! included, so `neoctl` and scripts over it need not know which admin they talk to. The report has
//! further lines only while something is wrong that NEO/py does not notice.

#![forbid(unsafe_code)]

mod admin;
mod backups;
mod health;
mod master;
mod members;
mod monitor;
mod notes;
mod operators;
mod peer;
mod settings;
mod status;
mod summary;
mod table;
mod upstream;

pub use admin::Admin;
pub use settings::Settings;
pub use status::{MemberStatus, Status};
pub use zodium_neo::Output;
use zodium_neo::handling;
