//! Workers and links: carries bytes in batches from sockets to sessions and back.
//!
//! There is one worker thread for each core, with a single-threaded runtime. A link belongs to one
//! worker at a time, so sessions need no locks. A link reads all bytes that are there, passes them
//! to its session, and sends all answers of the session with one gather-write.
//!
//! Invariant: this crate knows no protocol. Only sessions know what a frame is.

#![forbid(unsafe_code)]

mod arrivals;
mod balance;
mod balancer;
mod busy_poll;
mod door;
mod handshake;
mod host;
mod inbox;
mod input;
mod jobs;
mod keepalive;
mod link;
mod listener;
mod log_limiter;
mod metrics;
#[cfg(test)]
mod moving_tests;
mod output;
mod peer_log;
mod protocols;
mod refusal;
mod ring;
mod session;
mod socket_path;
mod thread_time;
#[cfg(test)]
mod tls_tests;
mod together;
mod unfinished;
mod workers;

pub use arrivals::Arrivals;
pub use door::Share;
pub use host::Host;
pub use inbox::{Inbox, InboxSender, inbox};
pub use jobs::{Blocking, JOBS_MAX, Jobs, RuntimeThreads};
pub use keepalive::Keepalive;
pub use link::{Limits, Link};
pub use listener::{Bound, Incoming, Listener};
pub use log_limiter::LogLimiter;
pub use metrics::LinkMetrics;
pub use output::Output;
pub use protocols::{Protocol, Protocols};
pub use refusal::Refusal;
pub use ring::Ring;
pub use session::{CloseReason, Consumed, Parked, Service, Session};
pub use together::Together;
pub use workers::{Balancing, WorkerError, WorkerOptions, Workers};
