//! Errors returned by the client API.

use std::io;
use std::sync::Arc;

use thiserror::Error;
use zodium_transport::{Interrupted, OpenError};
use zodium_types::Oid;
use zodium_zeo::codec::{CodecError, RemoteError};

use crate::Exception;

/// Why a call failed. Clones share their texts.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The method raised an exception on the server.
    #[error("{0}")]
    Raised(Arc<Exception>),
    /// The connection ended before the reply arrived. The request can be repeated on a new
    /// connection.
    #[error("the connection to the server is lost: {0}")]
    Disconnected(Arc<str>),
    /// No connection was made within the time that calls wait for one.
    #[error("no connection to a server within {waited_seconds} seconds: {reason}")]
    Unreachable {
        /// How long the call has waited.
        waited_seconds: f64,
        /// The error of the last attempt.
        reason: Arc<str>,
    },
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
    /// [`crate::Interrupt`] told the caller to stop waiting. The connection stays usable; the reply
    /// is discarded when it arrives.
    #[error("interrupted while waiting for the server")]
    Interrupted,
    /// The caller is told of a commit or a connection. It would wait for what its own thread has to
    /// read, or for the connection that this thread has to make.
    #[error(
        "a function that is told of commits, or a signal handler within one, cannot wait for the \
         server: its own thread reads the answer"
    )]
    Nested,
    /// A watcher, or the function that a finish calls, has not taken in a commit or a connection.
    #[error("the application could not be told of a commit or of the connection")]
    NotTold,
    /// The outcome of a finish is unknown: the connection ended before the reply, or the caller
    /// stopped waiting for it. [`crate::Client::outcome`] finds out, once there is a connection
    /// again.
    #[error(
        "the transaction was being finished, and whether it is committed is not known ({reason}); \
         ask for its outcome, or look at the objects"
    )]
    OutcomeUnknown {
        /// How the connection ended, or that the caller was interrupted.
        reason: Arc<str>,
        /// The unfinished transaction, for [`crate::Client::outcome`].
        transaction: Arc<crate::Unfinished>,
    },
    /// The transaction was not finished, and is aborted, because the server has not agreed to it as
    /// it is now. The text says why.
    #[error("the transaction cannot be finished: {0}")]
    NotVoted(&'static str),
    /// There is no such object, or it has been deleted.
    #[error("there is no object {0}")]
    NoObject(Oid),
    /// The client is read-only.
    #[error("the connection is read-only")]
    ReadOnly,
    /// An invalid address, name or combination of options.
    #[error("{0}")]
    Options(Arc<str>),
    /// A value cannot be encoded, or a reply cannot be decoded.
    #[error(transparent)]
    Message(#[from] CodecError),
    /// The reply has another type than expected.
    #[error("the reply to {method}() is not {expected}")]
    Unexpected {
        /// The method.
        method: &'static str,
        /// The expected reply.
        expected: &'static str,
    },
    /// A local file cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: Arc<str>,
        /// The system's error.
        reason: Arc<str>,
        /// Its number, if it has one.
        code: Option<i32>,
    },
}

impl ClientError {
    /// Whether the server raised an exception with this dotted class name.
    pub fn is_exception(&self, name: &str) -> bool {
        matches!(self, ClientError::Raised(exception) if exception.name == name)
    }

    /// Whether the connection failed, so that a retry on another one may succeed.
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
        ClientError::Raised(Arc::new(error.into()))
    }
}

impl From<OpenError> for ClientError {
    fn from(error: OpenError) -> ClientError {
        match &error {
            OpenError::Handshake { reason, .. } if is_not_tls(reason) => {
                ClientError::disconnected(format!("{error}; the server seems to have no TLS"))
            }
            _ => ClientError::disconnected(error),
        }
    }
}

/// Whether a TLS handshake failed because the peer's answer is not TLS.
fn is_not_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let wrong = rustls::InvalidMessage::InvalidContentType;
    inner.is_some_and(|error| *error == rustls::Error::InvalidMessage(wrong))
}

impl From<Interrupted> for ClientError {
    fn from(_: Interrupted) -> ClientError {
        ClientError::Interrupted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_tls_is_told_from_other_failures() {
        let said = |error| {
            let reason = io::Error::other(error);
            let address = "127.0.0.1:8100".to_owned();
            ClientError::from(OpenError::Handshake { address, reason }).to_string()
        };
        let not_tls = rustls::InvalidMessage::InvalidContentType;
        let plain = said(rustls::Error::InvalidMessage(not_tls));
        assert!(plain.ends_with("the server seems to have no TLS"), "{plain}");
        let other = said(rustls::Error::HandshakeNotComplete);
        assert!(!other.contains("no TLS"), "{other}");
    }
}
