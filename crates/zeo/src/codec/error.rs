//! Errors of messages, both received and to be sent.

use thiserror::Error;
use zodium_pickle::PickleError;

use super::msgpack::MsgpackError;

/// Bytes of an unknown handshake that are shown.
const SHOWN_BYTES_MAX: usize = 20;

/// A message that cannot be decoded or encoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodecError {
    /// A `Z5` message is not a pickle of plain data.
    #[error(transparent)]
    Pickle(#[from] PickleError),
    /// An `M5` message is not msgpack of plain data.
    #[error(transparent)]
    Msgpack(#[from] MsgpackError),
    /// Bytes follow the message in its payload.
    #[error("{count} bytes follow the message in its frame")]
    TrailingBytes {
        /// The number of bytes.
        count: usize,
    },
    /// The data are valid but not a ZEO message.
    #[error("not a ZEO message: {what}")]
    NotAMessage {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The first frame of the peer is not a handshake of ZEO 5.
    #[error("\"{shown}\" is not a handshake of ZEO protocol 5; use ZEO 5.0 or later")]
    UnknownHandshake {
        /// The beginning of the frame, escaped.
        shown: String,
    },
    /// A message of 4 GiB or more, whose length does not fit into the header.
    #[error("a message of {length} bytes does not fit a frame")]
    MessageTooLong {
        /// The length in bytes of the message.
        length: usize,
    },
    /// A value that `M5` cannot encode.
    #[error("a value of type {kind} cannot be sent in msgpack; the pickle encoding can")]
    NotEncodable {
        /// Python's name of the type.
        kind: &'static str,
    },
}

impl CodecError {
    pub(super) fn unknown_handshake(payload: &[u8]) -> CodecError {
        let length = payload.len().min(SHOWN_BYTES_MAX);
        let shown = payload.get(..length).unwrap_or_default().escape_ascii().to_string();
        CodecError::UnknownHandshake { shown }
    }
}
