//! Errors of rustls and webpki in plain words; their own texts contain names of types.

use std::fmt::Debug;

use rustls::{CertificateError, Error, OtherError};
use x509_parser::error::X509Error;
use x509_parser::nom;

use crate::side::Side;

/// The kinds of keys that TLS is spoken with.
pub(crate) const SUPPORTED_KEYS: &str =
    "RSA of 2,048 bits or more, ECDSA on P-256 or P-384, and Ed25519 are supported";

/// Explains an error of a handshake with a peer of this kind.
pub(crate) fn of_error(error: &Error, peer: Side) -> String {
    match error {
        Error::InvalidCertificate(error) => {
            format!("the peer's certificate is rejected: {}", of_certificate_error(error, peer))
        }
        Error::AlertReceived(alert) => {
            format!("the peer ended the handshake with the alert \"{}\"", of_debug(alert))
        }
        Error::PeerIncompatible(why) => format!("the peer is incompatible: {}", of_debug(why)),
        Error::PeerMisbehaved(why) => format!("the peer violates the protocol: {}", of_debug(why)),
        Error::InvalidMessage(why) => {
            format!("the peer sent an invalid message: {}", of_debug(why))
        }
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "the peer sent a message out of turn".to_owned()
        }
        Error::InvalidCertRevocationList(why) => {
            format!("a revocation list is invalid: {}", of_debug(why))
        }
        Error::InconsistentKeys(_) => "the key does not belong to the certificate".to_owned(),
        other => other.to_string(),
    }
}

/// Explains why a certificate is rejected.
pub(crate) fn of_certificate_error(error: &CertificateError, peer: Side) -> String {
    let text = match error {
        CertificateError::UnknownIssuer => "neither it nor its issuer is trusted",
        CertificateError::Revoked => "it is revoked",
        CertificateError::UnknownRevocationStatus => {
            "there are revocation lists, but none of its authority"
        }
        CertificateError::ExpiredRevocationList => {
            "the revocation list of its authority has expired"
        }
        CertificateError::InvalidPurpose => match peer {
            Side::Client => "its extended key usage says that it is not for clients",
            Side::Server => "its extended key usage says that it is not for servers",
        },
        CertificateError::Expired => "it has expired, or is not valid yet",
        CertificateError::NotValidYet => "it is not valid yet",
        CertificateError::BadEncoding => "it cannot be parsed",
        CertificateError::BadSignature => {
            "a signature in it, or made with its key, does not verify"
        }
        CertificateError::Other(OtherError(inner))
            if inner.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity) =>
        {
            "it is marked as an authority: such a certificate has to be listed itself"
        }
        CertificateError::Other(OtherError(inner))
            if inner.downcast_ref().is_some_and(is_of_unsupported_kind) =>
        {
            return format!("it is signed with a key of another kind: {SUPPORTED_KEYS}");
        }
        CertificateError::Other(OtherError(inner)) => return of_text(&inner.to_string()),
        other => return of_text(&other.to_string()),
    };
    text.to_owned()
}

fn is_of_unsupported_kind(error: &webpki::Error) -> bool {
    matches!(
        error,
        webpki::Error::UnsupportedSignatureAlgorithmContext(_)
            | webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_)
    )
}

/// Explains why a certificate or a revocation list cannot be parsed.
pub(crate) fn of_parsing(error: &nom::Err<X509Error>) -> String {
    match error {
        nom::Err::Incomplete(_) => "it ends too early".to_owned(),
        nom::Err::Error(error) | nom::Err::Failure(error) => of_content(error),
    }
}

/// Explains what is wrong with the content of a certificate.
pub(crate) fn of_content(error: &X509Error) -> String {
    match error {
        X509Error::Der(_) | X509Error::NomError(_) => "it is not encoded in DER".to_owned(),
        error => error.to_string(),
    }
}

/// The name of a variant as words: `SignatureAlgorithmsExtensionRequired` becomes "signature
/// algorithms extension required".
pub(crate) fn of_debug(error: &impl Debug) -> String {
    of_name(&format!("{error:?}"))
}

/// Gives a text unchanged, unless it is the name of a variant, with or without fields.
pub(crate) fn of_text(text: &str) -> String {
    let name_length = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let rest = &text[name_length..];
    let is_name = rest.is_empty() || rest.starts_with('(') || rest.starts_with(" {");
    if is_name { of_name(text) } else { text.to_owned() }
}

/// The name of a variant as words, without its fields.
fn of_name(text: &str) -> String {
    let name: Vec<char> = text.chars().take_while(char::is_ascii_alphanumeric).collect();
    let mut words = String::new();
    for (index, letter) in name.iter().enumerate() {
        let next_is_lower = name.get(index + 1).is_some_and(char::is_ascii_lowercase);
        let last_is_upper = index > 0 && name[index - 1].is_ascii_uppercase();
        let is_beginning = letter.is_ascii_uppercase() && (next_is_lower || !last_is_upper);
        if is_beginning && index > 0 {
            words.push(' ');
        }
        // Abbreviations (CA, EKU) stay as they are.
        let is_abbreviated =
            last_is_upper || name.get(index + 1).is_some_and(char::is_ascii_uppercase);
        words.push(if is_abbreviated { *letter } else { letter.to_ascii_lowercase() });
    }
    words
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{
        AlertDescription, CertificateError, InvalidMessage, OtherError, PeerIncompatible,
    };

    use super::*;

    #[test]
    fn names_of_variants_become_words() {
        assert_eq!(of_debug(&AlertDescription::UnknownCA), "unknown CA");
        assert_eq!(
            of_text("RequiredEkuNotFoundContext(X { a: 1 })"),
            "required eku not found context"
        );
        assert_eq!(of_text("certificate expired: 3 s ago"), "certificate expired: 3 s ago");
    }

    #[test]
    fn no_text_shows_the_name_of_a_type() {
        let certificates = [
            CertificateError::BadEncoding,
            CertificateError::BadSignature,
            CertificateError::NotValidYet,
            CertificateError::UnhandledCriticalExtension,
            CertificateError::ApplicationVerificationFailure,
            CertificateError::Other(OtherError(Arc::new(webpki::Error::MalformedExtensions))),
        ];
        let errors = certificates.map(Error::InvalidCertificate).into_iter().chain([
            Error::AlertReceived(AlertDescription::UnknownCA),
            Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
            Error::InvalidMessage(InvalidMessage::UnexpectedMessage("Finished")),
            Error::InappropriateMessage {
                expect_types: vec![rustls::ContentType::Handshake],
                got_type: rustls::ContentType::ApplicationData,
            },
        ]);
        for error in errors {
            let text = of_error(&error, Side::Client);
            let is_compound = |word: &str| {
                let mut neighbours = word.chars().zip(word.chars().skip(1));
                neighbours.any(|(a, b)| a.is_ascii_lowercase() && b.is_ascii_uppercase())
            };
            assert!(!text.split(' ').any(is_compound), "{text}");
            assert!(!text.contains(['(', '{', '[']), "{text}");
        }
    }
}
