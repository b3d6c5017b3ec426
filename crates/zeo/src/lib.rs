//! ZEO 5: the wire, and the server that speaks it.
//!
//! [`codec`] is a pure state machine over bytes; [`server`] turns its messages into calls on the
//! engine. The protocol knows no file.

#![forbid(unsafe_code)]

pub mod codec;
pub mod server;
