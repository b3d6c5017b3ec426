//! How a node refuses a message.

use tracing::{debug, warn};
use zodium_types::Tid;

use crate::messages::Error;
use crate::refusals::for_log;
use crate::{ErrorCode, Message};

/// The outcome of a message.
pub type Handled = Result<(), Refusal>;

/// Why a message is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the peer is told.
    pub code: ErrorCode,
    /// Why.
    pub text: String,
    /// Whether the connection is closed.
    pub is_end: bool,
}

impl Refusal {
    /// The peer broke the protocol: the connection ends.
    pub fn protocol(text: impl Into<String>) -> Refusal {
        Refusal { code: ErrorCode::ProtocolError, text: text.into(), is_end: true }
    }

    /// A message that has no place in the state of the connection.
    pub fn unexpected(message: &Message<'_>) -> Refusal {
        Refusal::protocol(format!("unexpected {}", message.name()))
    }

    /// The peer is of another cluster.
    pub fn other_cluster(name: &str) -> Refusal {
        Refusal::protocol(format!("invalid cluster name {name:.100}"))
    }

    /// The node cannot serve the peer now: the connection ends, and the peer tries again.
    pub fn not_ready(text: &str) -> Refusal {
        Refusal { code: ErrorCode::NotReady, text: text.to_owned(), is_end: true }
    }

    /// Only this request is refused.
    pub fn answer(code: ErrorCode, text: impl Into<String>) -> Refusal {
        Refusal { code, text: text.into(), is_end: false }
    }

    /// A command of an operator is not carried out.
    pub fn denied(text: impl Into<String>) -> Refusal {
        Refusal::answer(ErrorCode::Denied, text)
    }

    /// A transaction that the node has not heard of.
    pub fn unknown_transaction(ttid: Tid) -> Refusal {
        Refusal::protocol(format!("unknown transaction {ttid}"))
    }

    /// What the peer is sent.
    pub fn message(&self) -> Error<'_> {
        Error { code: self.code, message: &self.text }
    }

    /// Logs that the connection of `peer` is closed because of one of its messages. `unlogged`
    /// equal refusals before have no line.
    pub(crate) fn log(&self, peer: &str, message: &str, unlogged: u64) {
        let (code, text) = (&self.code, for_log(&self.text));
        if *code == ErrorCode::NotReady {
            // The peer tries again.
            debug!(peer, message, reason = text, "not ready, closing the connection");
        } else {
            let reason = text;
            let unlogged = (unlogged > 0).then_some(unlogged);
            warn!(
                peer, message, %code, reason, unlogged,
                "refusing a message, closing the connection"
            );
        }
    }

    /// This node has no readable cell of the partition.
    pub fn not_readable() -> Refusal {
        Refusal::answer(ErrorCode::NonReadableCell, "")
    }
}
