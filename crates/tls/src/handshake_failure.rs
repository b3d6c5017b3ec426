//! Why a client and a server did not come together, for who started the client.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use thiserror::Error;

use crate::peer_verifier::{Side, in_words};
use crate::words;

/// Why there is no connection over TLS, or no longer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HandshakeFailure {
    /// What came is not TLS.
    #[error("the server does not speak TLS: connect without --ssl-... options")]
    NotTls,
    /// We showed no certificate.
    #[error("the server wants a certificate: show it one with --ssl-certificate")]
    CertificateWanted,
    /// The server does not take the certificate that we showed.
    #[error(
        "the server rejected our certificate ({alert}). Add this certificate, or the authority \
         that signed it, to the server's `authenticate` setting; the server's log has the reason"
    )]
    CertificateRejected {
        /// The alert.
        alert: String,
    },
    /// We do not believe the server.
    #[error("the server's certificate is not believed: {reason}")]
    ServerNotTrusted {
        /// In words.
        reason: String,
    },
    /// The server is believed, but under other names.
    #[error(
        "the server's certificate is not for {expected} but for {presented}: give the name that \
         is meant with --ssl-server-hostname"
    )]
    OtherName {
        /// The name that was asked for.
        expected: String,
        /// The names that the certificate has.
        presented: String,
    },
    /// Another alert of the server.
    #[error("the server ended TLS ({alert}); its log says why")]
    Ended {
        /// The alert.
        alert: String,
    },
    /// Anything else.
    #[error("TLS failed: {}", words::of_error(.0, Side::Server))]
    Failed(Error),
}

/// Why a server does not believe a client's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRejection {
    /// The subject of the certificate, shortened.
    pub subject: String,
    /// In words.
    pub reason: String,
}

/// Why a server's handshake with a client failed, in words.
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
        error => HandshakeFailure::ServerNotTrusted { reason: in_words(error, Side::Server) },
    }
}
