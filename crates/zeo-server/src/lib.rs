//! The ZEO server: sessions that turn messages into calls on the engine.
//!
//! One [`ZeoService`] per worker holds one subscriber for each storage. The subscriber receives the
//! engine's notices in order and passes them to its sessions on the same thread. A load and its
//! reply are one step without an await, so the ordering contract of the protocol holds by
//! construction. Only a load that waited for the disk must check again that it is still current.
//!
//! A session owns its parts: stores, blobs, votes, downloads and iterators. Each part has data of
//! its own, and gets the client's storage, replies and jobs handed in. No part knows the session.

#![forbid(unsafe_code)]

mod answers;
mod begin;
mod blob_download;
mod blob_upload;
mod blobs;
mod cached_loads;
mod call;
mod cold_loads;
mod exception;
mod foreign_protocol;
mod info;
mod inspection;
mod invalidations;
mod iterators;
mod loads;
mod local;
mod log_chunk;
mod moving;
mod pack;
mod parts;
mod peer;
mod reads;
mod replies;
mod reports;
mod retry;
mod server;
mod service;
mod session;
mod statistics;
mod status;
mod stores;
mod subscriber;
#[cfg(test)]
mod testing;
mod transaction;
mod undo_log;
mod vote;
mod voting;

pub use answers::answer;
pub use begin::extension_bytes;
pub use exception::Exception;
pub use inspection::{BlobTraffic, SessionMetrics};
pub use reports::{Inspection, SessionReport, TransactionReport, WorkerReport};
pub use server::{Config, ServedStorage, Server};
pub use service::ZeoService;
pub use undo_log::tid_of_undo_id;
