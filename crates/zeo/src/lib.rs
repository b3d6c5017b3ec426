//! ZEO 5: the wire format, and the server.
//!
//! [`codec`] consists of pure functions over bytes. [`server`] turns messages into calls on the
//! engine.

#![forbid(unsafe_code)]

pub mod codec;
pub mod server;
