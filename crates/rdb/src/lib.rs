//! RDB, the format in which Redis and Valkey keep keys in files: reading files of all versions,
//! and values on their own, as `DUMP` gives them.
//!
//! Key decision: values are written in their plain encodings, which every version reads. All
//! encodings are read. No length that the input says is believed before its bytes are there.

#![forbid(unsafe_code)]

mod error;
mod file;
mod input;
mod intset;
mod kind;
mod listpack;
mod lzf;
mod output;
mod read_stream;
mod read_value;
mod sum;
mod write_stream;
mod write_value;
mod ziplist;

pub use error::RdbError;
pub use file::{Item, RdbReader};
pub use input::Input;
pub use kind::STRING;
pub use read_value::read_value;
pub use sum::sum;
pub use write_value::{write_part, write_value};

/// The version of the format that values are written in.
pub const VERSION: u16 = 11;
/// The newest version whose files are read.
pub const NEWEST_VERSION: u16 = 80;
