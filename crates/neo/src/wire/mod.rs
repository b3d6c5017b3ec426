//! Reading and writing msgpack as NEO uses it: the types of one argument.
//!
//! Numbers and lengths take msgpack's shortest form, as Python's `msgpack` writes them. All forms
//! are read. Text travels as `bin`; lists, tuples and sets as arrays.

mod mismatch;
mod plain;
mod reader;
mod record;
mod writer;

pub(crate) use mismatch::Mismatch;
pub use plain::Map;
pub(crate) use plain::{Decode, Encode};
pub(crate) use reader::Reader;
pub(crate) use record::record;
pub(crate) use writer::Writer;
