//! A master of a NEO cluster as a state machine: no sockets, no clock, no threads.
//!
//! The masters of a cluster elect one of them, the primary. It recovers the partition table from
//! storages, has them finish what was being committed, and then gives tids and oids, orders
//! commits, and keeps the partition table.
//!
//! A [`Master`] is told what happens: connections open and close, packets arrive. It answers with
//! [`Output`]s: addresses to dial, bytes to send, connections to close. The driver tells it the
//! time before each event.
//!
//! It hands events to parts, such as `transactions` or `backup`. A part owns its data, and does not
//! know the master: what changes several of them, the master does, a part at a time.
//!
//! Key decision: each event is handled to its end, and only then [`Master`] looks whether its phase
//! ends. So no handler sees the cluster between two phases.

#![forbid(unsafe_code)]

mod backup;
mod clock;
mod clock_watch;
mod cluster;
mod election;
mod identification;
mod master;
mod members;
mod old_copies;
mod packs;
mod peer;
mod phase;
mod readiness;
mod recovery;
mod refused;
mod secondary;
mod settings;
mod status;
mod table;
mod tids;
mod transactions;
mod troubles;
mod verification;

pub use master::Master;
pub(crate) use phase::{Phase, Stop};
pub use settings::{Settings, UpstreamSettings};
pub use status::Status;
pub use zodium_neo::Output;
use zodium_neo::handling;
