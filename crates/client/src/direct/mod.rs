//! A connection for commands: one call at a time, every wait with a limit.
//!
//! [`connect`] connects to an [`Address`](zodium_types::Address); [`Stream::secure`] begins TLS.
//! [`DirectClient`] greets in the encoding that the server announces, registers for a storage and
//! calls methods. [`health()`] asks `ruok`, which needs no registration.
//!
//! Key decision: no thread and no cache. Notices of the server are dropped, because a command has
//! no cache that they could invalidate.

mod call;
mod error;
mod frames;
mod health;
mod stream;
#[cfg(test)]
mod tests;

pub use call::{DirectClient, Pending};
pub use error::DirectError;
pub use health::health;
pub use stream::{Stream, connect};
