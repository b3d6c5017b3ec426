//! A blocking client for commands: one call at a time, every wait with a limit.
//!
//! [`connect`] connects to an [`Address`](zodium_types::Address). [`Client`] greets in the encoding
//! that the server announces, registers for a storage and calls methods. [`health()`] asks `ruok`,
//! which needs no registration. Both work on any [`Stream`]; [`secure`] makes an encrypted one.
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
mod tls;

pub use call::{Client, Pending};
pub use error::{ClientError, exception_text};
pub use health::health;
pub use stream::{Socket, Stream, connect, connect_socket};
pub use tls::secure;
