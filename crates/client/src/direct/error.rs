//! Errors of a direct connection.

use std::io;
use std::time::Duration;

use thiserror::Error;
use zodium_tls::HandshakeFailure;
use zodium_transport::ConnectError;
use zodium_zeo::codec::{CodecError, FrameError};

use crate::Exception;

/// Why a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DirectError {
    /// There is no connection to the server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server did not answer in time.
    #[error("no answer from the server within {} seconds", limit.as_secs_f64())]
    Silent {
        /// How long the client waited.
        limit: Duration,
    },
    /// The server ended the connection.
    #[error("the server closed the connection; see its log for the reason")]
    Closed,
    /// The server sent no greeting in time.
    #[error(
        "no answer from the server within {} seconds; if it speaks TLS, it waits for the client to \
         do so: see --ssl-certificate and --ssl-authenticate",
        limit.as_secs_f64()
    )]
    NoGreeting {
        /// How long the client waited.
        limit: Duration,
    },
    /// The server ended the connection before its greeting.
    #[error(
        "the server closed the connection before it said anything; if it speaks TLS, it waited \
         for the client to do so: see --ssl-certificate and --ssl-authenticate"
    )]
    ClosedUnheard,
    /// The server ended the connection during the TLS handshake.
    #[error(
        "the server closed the connection during the TLS handshake; see its log for the reason"
    )]
    NoHandshake,
    /// TLS failed.
    #[error(transparent)]
    Tls(#[from] HandshakeFailure),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// The server sent something that is not a frame.
    #[error("this is not a ZEO server: {0}")]
    Frame(#[from] FrameError),
    /// A message of the server cannot be decoded, or one to it cannot be encoded.
    #[error("the server does not speak ZEO 5 as expected: {0}")]
    Codec(#[from] CodecError),
    /// The answer to `ruok` cannot be parsed.
    #[error("the server's status cannot be read: {what}")]
    Status {
        /// What is wrong with it.
        what: String,
    },
    /// The method raised an exception.
    #[error(transparent)]
    Raised(#[from] Exception),
}
