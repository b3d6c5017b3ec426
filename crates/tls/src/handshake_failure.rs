//! Failed TLS handshakes, explained for the user of the client.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use thiserror::Error;

use crate::side::Side;
use crate::words;

/// Why a client's TLS connection failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HandshakeFailure {
    /// The server's answer is not TLS.
    #[error("the server does not speak TLS: connect without --ssl-... options")]
    NotTls,
    /// The server requires a client certificate, and the client has none.
    #[error("the server requires a client certificate: give one with --ssl-certificate")]
    CertificateWanted,
    /// The server rejected the client's certificate.
    #[error(
        "the server rejected our certificate ({alert}). Add this certificate, or the authority \
         that signed it, to the server's `authenticate` setting; the server's log has the reason"
    )]
    CertificateRejected {
        /// The alert.
        alert: String,
    },
    /// The client does not trust the server's certificate.
    #[error("the server's certificate is not trusted: {reason}")]
    ServerNotTrusted {
        /// In words.
        reason: String,
    },
    /// The server's certificate is trusted, but is for other names.
    #[error(
        "the server's certificate is not for {expected} but for {presented}: give the expected \
         name with --ssl-server-hostname"
    )]
    OtherName {
        /// The name that the client expects.
        expected: String,
        /// The names in the certificate.
        presented: String,
    },
    /// The server sent another alert.
    #[error("the server ended the TLS connection ({alert}); its log has the reason")]
    Ended {
        /// The alert.
        alert: String,
    },
    /// Any other failure.
    #[error("TLS failed: {}", words::of_error(.0, Side::Server))]
    Failed(Error),
}

/// Why a server rejected a client's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRejection {
    /// The subject of the certificate, shortened.
    pub subject: String,
    /// In words.
    pub reason: String,
}

/// Explains why a server's handshake with a client failed.
pub fn client_failure(error: &Error) -> String {
    words::of_error(error, Side::Client)
}

impl From<Error> for HandshakeFailure {
    fn from(error: Error) -> HandshakeFailure {
        match error {
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => HandshakeFailure::NotTls,
            Error::AlertReceived(alert) => of_alert(alert),
            Error::InvalidCertificate(error) => not_trusted(&error),
            error => HandshakeFailure::Failed(error),
        }
    }
}

fn of_alert(alert: AlertDescription) -> HandshakeFailure {
    let described = words::of_debug(&alert);
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            HandshakeFailure::CertificateWanted
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => {
            HandshakeFailure::CertificateRejected { alert: described }
        }
        _ => HandshakeFailure::Ended { alert: described },
    }
}

fn not_trusted(error: &CertificateError) -> HandshakeFailure {
    match error {
        CertificateError::NotValidForNameContext { expected, presented } => {
            HandshakeFailure::OtherName {
                expected: expected.to_str().into_owned(),
                presented: match presented.is_empty() {
                    true => "no name at all".to_owned(),
                    false => presented.join(", "),
                },
            }
        }
        error => HandshakeFailure::ServerNotTrusted {
            reason: words::of_certificate_error(error, Side::Server),
        },
    }
}
