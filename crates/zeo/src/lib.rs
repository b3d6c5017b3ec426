//! ZEO 5: the wire format, the server, and a client for commands.
//!
//! [`codec`] consists of pure functions over bytes. [`server`] turns messages into calls on the
//! engine. [`client`] calls methods of any ZEO server.

#![forbid(unsafe_code)]

pub mod client;
pub mod codec;
pub mod server;
