//! The ZEO server: sessions that turn messages into calls on the engine.
//!
//! One [`ZeoService`] per worker holds one subscriber for each storage. The subscriber receives the
//! engine's notices in order and passes them to its sessions on the same thread. A load and its
//! reply are one step without an await, so the ordering contract of the protocol holds by
//! construction. Only a load that waited for the disk must check again that it is still current.

mod begin;
mod blob_download;
mod blob_upload;
mod cached_loads;
mod call;
mod exception;
mod foreign_protocol;
mod inspection;
mod iterators;
mod jobs;
mod log_chunk;
mod pack;
mod reads;
mod service;
mod session;
mod statistics;
mod status;
mod subscriber;
mod transaction;
mod undo_log;
mod vote;
mod wire;

pub use inspection::{Inspection, SessionMetrics, SessionReport, TransactionReport, WorkerReport};
pub use jobs::Blocking;
pub use service::{Config, Offer, Server, ZeoService};
