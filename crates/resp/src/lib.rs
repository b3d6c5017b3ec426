//! The wire format of RESP, the protocol of Redis and Valkey: pure functions over bytes.
//!
//! Requests are arrays of bulk strings, or one line of words. Answers are written in RESP2 or in
//! RESP3, as the client chose. This crate knows neither commands nor sockets.

#![forbid(unsafe_code)]

mod arguments;
mod error;
mod hexadecimal;
mod inline;
mod limits;
mod number;
mod reader;
pub mod write;

pub use arguments::{Arguments, OwnedRequest};
pub use error::FrameError;
pub use inline::split_line;
pub use limits::RequestLimits;
pub use number::{
    add_decimals, format_double, parse_double, parse_integer, parse_limit, trim_decimal,
};
pub use reader::{RequestReader, Step};
pub use write::Version;
