//! What can go wrong for who uses a client.

use std::sync::Arc;

use thiserror::Error;
use zodium_pickle::Value;
use zodium_types::Oid;
use zodium_zeo::client as wire;
use zodium_zeo::codec::{CodecError, RemoteError};

/// Why there is no answer. Copies share their texts.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The method raised an exception on the server.
    #[error("{0}")]
    Raised(Arc<Exception>),
    /// The connection ended before the answer was there. What was asked for can be asked again,
    /// when there is a connection again.
    #[error("the connection to the server is lost: {0}")]
    Disconnected(Arc<str>),
    /// There was no connection within the time that calls wait for one.
    #[error("no connection to a server within {waited_seconds} seconds: {reason}")]
    Unreachable {
        /// How long was waited.
        waited_seconds: f64,
        /// What the last attempt said.
        reason: Arc<str>,
    },
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
    /// The caller was told to stop waiting, by [`crate::Interrupt`]. What was asked for is answered
    /// all the same, to nobody; the connection can be used on.
    #[error("interrupted while waiting for the server")]
    Interrupted,
    /// Nobody waited for the answer to the request to finish a transaction, or the connection ended
    /// before: it may have been committed, or not. [`crate::Client::outcome`] tells, once there is
    /// a connection again.
    #[error(
        "the transaction was being finished, and whether it is committed is not known ({reason}); \
         ask for its outcome, or look at the objects"
    )]
    OutcomeUnknown {
        /// How the connection ended, or that the caller was interrupted.
        reason: Arc<str>,
        /// What would be committed, to be asked for.
        transaction: Arc<crate::Unfinished>,
    },
    /// There is no such object, or it has been deleted.
    #[error("there is no object {0}")]
    NoObject(Oid),
    /// The client is for reading only.
    #[error("the connection is for reading only")]
    ReadOnly,
    /// An address, a name or a combination of options that cannot be.
    #[error("{0}")]
    Options(Arc<str>),
    /// A value cannot be sent, or an answer is not what it should be.
    #[error(transparent)]
    Message(#[from] CodecError),
    /// The answer of a method is of another kind than ours.
    #[error("{method}() was answered with something else than {expected}")]
    Unexpected {
        /// The method.
        method: &'static str,
        /// What it should answer.
        expected: &'static str,
    },
    /// A file of ours cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: Arc<str>,
        /// What the system said.
        reason: Arc<str>,
    },
}

/// An exception of the server, by name.
#[derive(Debug, Error)]
#[error("{}", wire::exception_text(name, payload))]
pub struct Exception {
    /// The dotted name of its class.
    pub name: String,
    /// Its attributes as a dict, or else its arguments as a sequence.
    pub payload: Value<'static>,
}

impl ClientError {
    /// Whether the server raised an exception of this dotted name.
    pub fn is_exception(&self, name: &str) -> bool {
        matches!(self, ClientError::Raised(exception) if exception.name == name)
    }

    /// Whether it is the connection that failed, so that a later one may do.
    pub fn is_disconnection(&self) -> bool {
        matches!(self, ClientError::Disconnected(_) | ClientError::Unreachable { .. })
    }

    pub(crate) fn disconnected(reason: impl ToString) -> ClientError {
        ClientError::Disconnected(reason.to_string().into())
    }

    pub(crate) fn options(what: impl ToString) -> ClientError {
        ClientError::Options(what.to_string().into())
    }
}

impl From<RemoteError<'_>> for ClientError {
    fn from(error: RemoteError<'_>) -> ClientError {
        let (name, payload) = (error.name.into_owned(), error.payload.into_owned());
        ClientError::Raised(Arc::new(Exception { name, payload }))
    }
}

impl From<wire::ClientError> for ClientError {
    fn from(error: wire::ClientError) -> ClientError {
        ClientError::disconnected(error)
    }
}
