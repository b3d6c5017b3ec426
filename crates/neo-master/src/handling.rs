//! How a message is refused.

use zodium_neo::{ErrorCode, Message};

/// The outcome of a message.
pub(crate) type Handled = Result<(), Refusal>;

/// Why a message is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What the peer is told.
    pub(crate) code: ErrorCode,
    /// Why.
    pub(crate) text: String,
    /// Whether the connection is closed.
    pub(crate) is_end: bool,
}

impl Refusal {
    /// The peer broke the protocol: the connection ends.
    pub(crate) fn protocol(text: impl Into<String>) -> Refusal {
        Refusal { code: ErrorCode::ProtocolError, text: text.into(), is_end: true }
    }

    /// A message that has no place in the state of the connection.
    pub(crate) fn unexpected(message: &Message<'_>) -> Refusal {
        Refusal::protocol(format!("unexpected {}", message.name()))
    }

    /// The master cannot serve the peer now: the connection ends, and the peer tries again.
    pub(crate) fn not_ready(text: &str) -> Refusal {
        Refusal { code: ErrorCode::NotReady, text: text.to_owned(), is_end: true }
    }

    /// Only this request is refused.
    pub(crate) fn answer(code: ErrorCode, text: impl Into<String>) -> Refusal {
        Refusal { code, text: text.into(), is_end: false }
    }

    /// A command of an operator is not carried out.
    pub(crate) fn denied(text: impl Into<String>) -> Refusal {
        Refusal::answer(ErrorCode::Denied, text)
    }
}
