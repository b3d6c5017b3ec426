//! Errors of messages, both received and to be sent.

use thiserror::Error;

use crate::scanner::MESSAGE_BYTES_MAX;
use crate::wire::Mismatch;

/// A message that is not one of this protocol. The connection cannot be used any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The frame does not begin as a message does.
    #[error("not a message of NEO: {part} is {found} at byte {offset}, not {expected}")]
    NotAMessage {
        /// The id, the code, or the arguments.
        part: &'static str,
        /// What the protocol has there.
        expected: String,
        /// What is there instead.
        found: String,
        /// Where it is, from the beginning of the message.
        offset: usize,
    },
    /// The code of no message.
    #[error("no message of NEO protocol 5 has the code {code:#06x}")]
    UnknownCode {
        /// The code.
        code: u16,
    },
    /// An argument is not what the protocol says.
    #[error("{message}: {argument} is {found} at byte {offset}, not {expected}")]
    Argument {
        /// The name of the message.
        message: &'static str,
        /// Path to the argument, such as `nodes[3].state`; `arguments` for all of them.
        argument: String,
        /// What the protocol has there.
        expected: String,
        /// What is there instead.
        found: String,
        /// Where it is, from the beginning of the message.
        offset: usize,
    },
}

/// A message that no peer would accept. Nothing has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{message} of {length} bytes is not sent: peers accept {MESSAGE_BYTES_MAX} at most")]
pub struct TooLong {
    /// The name of the message.
    pub message: &'static str,
    /// Its length in bytes.
    pub length: usize,
}

impl DecodeError {
    #[cold]
    pub(crate) fn argument(message: &'static str, mismatch: Mismatch) -> DecodeError {
        let Mismatch { path, expected, found, offset } = mismatch;
        let argument = if path.is_empty() { "arguments".to_owned() } else { path };
        let (expected, found) = (expected.into_owned(), found.into_owned());
        DecodeError::Argument { message, argument, expected, found, offset }
    }

    #[cold]
    pub(crate) fn not_a_message(part: &'static str, mismatch: Mismatch) -> DecodeError {
        let (expected, found) = (mismatch.expected.into_owned(), mismatch.found.into_owned());
        DecodeError::NotAMessage { part, expected, found, offset: mismatch.offset }
    }
}
