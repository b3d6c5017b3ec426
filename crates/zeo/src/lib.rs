//! ZEO 5: the wire, the server that speaks it, and a client for commands.
//!
//! [`codec`] is a pure state machine over bytes; [`server`] turns its messages into calls on the
//! engine; [`client`] asks any server. The protocol knows no file, and the client no server.

#![forbid(unsafe_code)]

pub mod client;
pub mod codec;
pub mod server;
