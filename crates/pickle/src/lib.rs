//! Pickles as data: decodes and encodes them without importing or executing anything.
//!
//! Pickles occur in ZEO's `Z5` messages, in the extension of a transaction and in data records.
//! [`decode()`] returns a tree of [`Value`]s, and [`encode()`] writes one as zodbpickle's fast mode
//! would. [`class_of_record`] and [`references_of_record`] answer the two questions that a storage
//! has about a record, without decoding its state.
//!
//! Invariant: a class or function is only a name here, and never looked up. What a pickle would
//! construct becomes a [`Value::Object`] that describes the construction.
//!
//! Formats: CPython's `Lib/pickletools.py` documents every opcode. Protocols 0 to 4 are decoded,
//! protocol 3 is encoded.

#![forbid(unsafe_code)]

mod decode;
mod disassemble;
mod encode;
mod error;
mod machine;
mod memo;
mod node;
pub mod opcode;
mod operation;
mod plain;
mod purpose;
mod record;
mod text;
mod tree;
mod value;

pub use decode::{
    Limits, Objects, decode, decode_extension, decode_record, decode_record_to_show, is_compressed,
};
pub use disassemble::{Argument, Disassembler, Instruction};
pub use encode::{
    BATCH_LENGTH, encode, encode_body, encode_bytes, encode_bytes_header, encode_int, encode_str,
};
pub use error::PickleError;
pub use record::{
    ClassName, Reference, class_of_record, is_whole_pickle, is_whole_record, references_of_record,
};
pub use value::{Construction, Global, Object, Value};

/// Parses hexadecimal digits.
#[cfg(test)]
fn test_bytes(digits: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.as_bytes().chunks(2).map(byte).collect()
}
