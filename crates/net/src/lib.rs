//! Workers and links: bytes in whole batches from sockets to sessions and back.
//!
//! One worker thread a core, each with a single-threaded runtime; a link belongs to one worker
//! for life, so sessions need no locks. A link reads all there is, gives it to its session, and
//! sends everything that the session has answered with one gather-write.
//!
//! Invariant: this crate knows no protocol. What a frame is, sessions know.

#![forbid(unsafe_code)]

mod busy_poll;
mod handshake;
mod input;
mod link;
mod listener;
mod log_limiter;
mod metrics;
mod output;
mod session;
#[cfg(test)]
mod tls_tests;
mod unfinished;
mod worker;

pub use link::{Limits, Link};
pub use listener::{Bound, Incoming, Listener};
pub use metrics::LinkMetrics;
pub use output::Output;
pub use session::{Consumed, Service, Session, Verdict};
pub use worker::{Host, WorkerError, WorkerOptions, Workers};
