//! The errors of a frame. The connection ends after one: where the next frame begins is unknown.

use thiserror::Error;

/// A frame that breaks the protocol. The text is that of the stock server, which its clients and
/// tests compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The number of arguments is no number, or too large.
    #[error("Protocol error: invalid multibulk length")]
    ArgumentCount,
    /// The length of an argument is no number, negative, or too large.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// An argument does not begin with `$`.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0))]
    NoBulk(u8),
    /// An inline request has a quote that is not closed, or closed within a word.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// An inline request without an end.
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
    /// A number of arguments without an end.
    #[error("Protocol error: too big mbulk count string")]
    ArgumentCountTooLong,
    /// A length of an argument without an end.
    #[error("Protocol error: too big bulk count string")]
    BulkLengthTooLong,
    /// Too many arguments before authentication.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedArguments,
    /// Too long an argument before authentication.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulk,
}
