//! Verifies client certificates, for a server in rustls.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::CertificateRejection;
use crate::certificate::Certificate;
use crate::peer_verifier::{PeerVerifier, seconds};
use crate::side::Side;
use crate::words;

/// Characters of the subject of a rejected certificate that are logged.
const SUBJECT_SHOWN_MAX: usize = 200;

/// Accepts the clients that its [`PeerVerifier`] accepts, and keeps the reason of a rejection.
///
/// There is one for each connection: rustls reports only that the certificate was rejected.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    peer_verifier: Arc<PeerVerifier>,
    rejection: Arc<OnceLock<CertificateRejection>>,
}

impl ClientVerifier {
    /// `peer_verifier` verifies clients; `rejection` receives the reason.
    pub(crate) fn new(
        peer_verifier: Arc<PeerVerifier>,
        rejection: Arc<OnceLock<CertificateRejection>>,
    ) -> ClientVerifier {
        ClientVerifier { peer_verifier, rejection }
    }
}

impl ClientCertVerifier for ClientVerifier {
    /// Empty, so that a client presents whatever certificate it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let read = Certificate::read(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        match self.peer_verifier.check(end_entity, intermediates, now) {
            Ok(()) => Ok(ClientCertVerified::assertion()),
            Err(error) => {
                // Shortened: the client chooses the subject, which may be long.
                let subject = format!("{:.SUBJECT_SHOWN_MAX$}", read.identity.subject);
                let when = read.validity.failure(seconds(now));
                let reason =
                    when.unwrap_or_else(|| words::of_certificate_error(&error, Side::Client));
                // Already set only after a second request, and a client gets one.
                let _ = self.rejection.set(CertificateRejection { subject, reason });
                Err(error.into())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.peer_verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.peer_verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.peer_verifier.supported_verify_schemes()
    }
}
