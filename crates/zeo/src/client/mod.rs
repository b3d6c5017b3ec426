//! A blocking client for commands: one call at a time, every wait with a limit.
//!
//! [`connect`] reaches an [`Address`](zodium_types::Address); [`Client`] greets in whichever
//! encoding the server announces, registers with a storage and calls methods; [`health()`] asks
//! `ruok`, for which nobody registers. Both work on any [`Stream`]; [`secure`] makes one that
//! encrypts.
//!
//! Key decision: no thread and no cache. Notices that come between are dropped: a command has
//! nothing that they could make old.

mod call;
mod error;
mod frames;
mod health;
mod stream;
#[cfg(test)]
mod tests;
mod tls;

pub use call::{Client, Pending};
pub use error::{ClientError, exception_text};
pub use health::health;
pub use stream::{Socket, Stream, connect, connect_socket};
pub use tls::secure;
