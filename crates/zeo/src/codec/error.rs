//! What can be wrong with a message, from outside or about to go there.

use thiserror::Error;
use zodium_pickle::PickleError;

use super::msgpack::MsgpackError;

/// How much of a strange handshake is shown.
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
    /// The payload goes on after the message.
    #[error("{count} bytes follow the message in its frame")]
    TrailingBytes {
        /// How many.
        count: usize,
    },
    /// The data is sound but no ZEO message.
    #[error("not a ZEO message: {what}")]
    NotAMessage {
        /// What it lacks.
        what: &'static str,
    },
    /// The first frame of the peer is none that ZEO 5 knows.
    #[error("\"{shown}\" is no handshake of ZEO protocol 5; use ZEO 5.0 or later")]
    UnknownHandshake {
        /// The beginning of the frame, escaped.
        shown: String,
    },
    /// A message of 4 GiB or more: its length does not fit the header.
    #[error("a message of {length} bytes does not fit a frame")]
    MessageTooLong {
        /// The length in bytes of the message.
        length: usize,
    },
    /// `M5` has no form for a value.
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
