//! Errors of decoding. Offsets count bytes from the start of the pickle.

use thiserror::Error;

/// A pickle that cannot be read as data.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PickleError {
    /// The bytes end inside an operation or before STOP.
    #[error("the pickle is cut short: more bytes are needed at byte {offset}")]
    Truncated {
        /// Where the unfinished operation begins.
        offset: usize,
    },
    /// An opcode that no supported protocol has, or that only makes sense inside one process.
    #[error("opcode {opcode:#04x} at byte {offset} of the pickle is not supported")]
    UnsupportedOpcode {
        /// The opcode.
        opcode: u8,
        /// Where it is.
        offset: usize,
    },
    /// A protocol newer than those that are read.
    #[error("pickle protocol {protocol} is not supported; 0 to 4 are")]
    UnsupportedProtocol {
        /// The protocol that the pickle announces.
        protocol: u8,
    },
    /// The operations do not fit together, or an argument is not what its opcode demands.
    #[error("the pickle is malformed at byte {offset}: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Where the operation begins.
        offset: usize,
    },
    /// Containers nested deeper than [`crate::Limits::nesting`], or a value that contains itself.
    #[error("the pickle nests deeper than {limit} containers, or a value contains itself")]
    TooDeep {
        /// The exceeded limit.
        limit: usize,
    },
    /// A pickle with information that [`crate::Value`]s cannot represent, where they have to be
    /// exact.
    #[error("the pickle holds {what}, which cannot be represented exactly")]
    Inexact {
        /// What cannot be represented.
        what: &'static str,
    },
    /// More values than [`crate::Limits::nodes`].
    #[error("the pickle holds more than {limit} values")]
    TooManyNodes {
        /// The exceeded limit.
        limit: usize,
    },
    /// An instance, class or persistent reference where only plain data are allowed.
    #[error("the pickle holds {name} at byte {offset}, which is not allowed here")]
    ObjectRefused {
        /// `module.name` of the class or function, or "a persistent reference".
        name: String,
        /// Where the name is.
        offset: usize,
    },
    /// Data that an application's zc.zlibstorage has compressed, which are sound.
    #[error("the data are compressed by zc.zlibstorage")]
    Compressed,
    /// A persistent reference in an unknown form.
    #[error("the record's persistent reference at byte {offset} has no known form")]
    UnknownReference {
        /// The offset of the reference, from the start of the record.
        offset: usize,
    },
}

impl PickleError {
    /// What an operator does about a record whose references a pack cannot read.
    #[must_use]
    pub fn advice_to_pack(&self) -> &'static str {
        match self {
            PickleError::Compressed => {
                "That is no damage: pack without garbage collection (`--no-gc`, or `pack-gc off` \
                 of the server)"
            }
            _ => "Mend the object, or pack without garbage collection",
        }
    }
}
