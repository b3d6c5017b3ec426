//! Blocking connections of clients: a socket with or without TLS that one thread writes to while
//! another reads, and the buffer that it reads into.
//!
//! Key decision: no runtime. A caller that waits for its answer reads the socket itself, or has one
//! thread read for many; either way no task is woken in between.

#![forbid(unsafe_code)]

mod input_buffer;
mod interrupt;
mod leadership;
mod patience;
mod poll;
mod promise;
mod socket;
mod transport;
mod turns;

pub use input_buffer::InputBuffer;
pub use interrupt::{Interrupt, Interrupted, TICK};
pub use patience::Patience;
pub use promise::Promise;
pub use socket::{ConnectError, Socket, connect_socket};
pub use transport::{OpenError, TlsSide, Transport};
pub use turns::{Reader, Turns};
