//! Why a tool could not do its work.

use std::io;

use thiserror::Error;
use zodium_storage::StorageError;
use zodium_types::Tid;

/// Why a tool ended early.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The storage cannot be read, or refuses a transaction.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    /// The input cannot be read.
    #[error("cannot read the input: {0}")]
    Input(#[source] io::Error),
    /// The input is no dump.
    #[error("line {line} of the input: {what}")]
    NoDump {
        /// Counted from 1.
        line: u64,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// A transaction stands behind a later one, so that no storage takes them in this order.
    #[error(
        "transaction {tid} stands behind {last}, which is not earlier: `zodium recover` writes a \
         file in which such transactions have later tids"
    )]
    NotLater {
        /// The transaction.
        tid: Tid,
        /// The one before it.
        last: Tid,
    },
    /// The request cannot be fulfilled with these data.
    #[error("{0}")]
    Refused(String),
}

impl ToolError {
    /// Whether the program that read the output has ended, which is no failure.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, ToolError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether the storage is damaged, rather than out of reach.
    pub fn is_damage(&self) -> bool {
        matches!(self, ToolError::Storage(StorageError::Corrupt(_)))
    }
}

/// A text that names no transaction, no range or no object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NameError(String);

impl NameError {
    pub(crate) fn new(what: impl Into<String>) -> NameError {
        NameError(what.into())
    }
}
