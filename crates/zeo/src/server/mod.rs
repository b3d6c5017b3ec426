//! The ZEO server: sessions that turn messages into calls on the engine.
//!
//! One [`ZeoService`] per worker holds a hub per storage; the hub gets the engine's notices in
//! order and hands them to its sessions on the same thread. A load is computed and its reply
//! appended without a pause, so the ordering contract of the protocol holds by construction;
//! only a load that waited for the disk has to ask again whether it is still current.

mod begin;
mod blob_download;
mod blob_upload;
mod cached_loads;
mod call;
mod exception;
mod hub;
mod inspection;
mod iterators;
mod jobs;
mod pack;
mod reads;
mod service;
mod session;
mod statistics;
mod status;
mod stranger;
mod stretch;
mod transaction;
mod undo_log;
mod vote;
mod wire;

pub use inspection::{Inspection, SessionMetrics, SessionReport, TransactionReport, WorkerReport};
pub use jobs::Blocking;
pub use service::{Config, Offer, Server, ZeoService};
