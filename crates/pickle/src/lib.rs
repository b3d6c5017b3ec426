//! Pickles as data: reads and writes them without ever importing or running anything.
//!
//! Zodium meets pickles in ZEO's `Z5` messages, in the extension of a transaction and in data
//! records. [`decode()`] gives a tree of [`Value`]s, [`encode()`] writes one as zodbpickle's
//! fast mode would, [`class_of_record`] and [`references_of_record`] answer the two questions a
//! storage has about a record without building its state.
//!
//! Invariant: a class or function is a name here, never something that is looked up. What a
//! pickle would construct becomes a [`Value::Object`] that says how.
//!
//! Formats: CPython `Lib/pickletools.py` documents every opcode; protocols 0 to 4 are read,
//! protocol 3 is written.

#![forbid(unsafe_code)]

mod decode;
mod encode;
mod error;
mod machine;
mod memo;
mod node;
pub mod opcode;
mod operation;
mod plain;
mod record;
mod text;
mod tree;
mod value;

pub use decode::{Limits, Objects, decode, decode_record};
pub use encode::{
    BATCH_LENGTH, encode, encode_body, encode_bytes, encode_bytes_header, encode_int, encode_str,
};
pub use error::PickleError;
pub use record::{ClassName, Reference, class_of_record, is_whole_record, references_of_record};
pub use value::{Construction, Global, Object, Value};

/// The bytes that hexadecimal digits stand for.
#[cfg(test)]
fn test_bytes(digits: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.as_bytes().chunks(2).map(byte).collect()
}
