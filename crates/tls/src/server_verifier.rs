//! Verifies server certificates, for a client in rustls.
//!
//! Key decision: the name of a server is checked only if an authority certifies it. A server with
//! a pinned certificate is known already, whatever its name.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::EndEntityCert;

use crate::peer_verifier::PeerVerifier;

/// Accepts the servers that its [`PeerVerifier`] accepts, under the names in their certificates.
#[derive(Debug)]
pub(crate) struct ServerVerifier {
    peer_verifier: PeerVerifier,
    any_name: bool,
}

impl ServerVerifier {
    /// `peer_verifier` verifies servers; with `any_name` names are not checked.
    pub(crate) fn new(peer_verifier: PeerVerifier, any_name: bool) -> ServerVerifier {
        ServerVerifier { peer_verifier, any_name }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.peer_verifier.check(end_entity, intermediates, now)?;
        if !self.any_name && !self.peer_verifier.is_pinned(end_entity) {
            check_name(end_entity, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
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

fn check_name(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
) -> Result<(), CertificateError> {
    let certificate =
        EndEntityCert::try_from(certificate).map_err(|_| CertificateError::BadEncoding)?;
    certificate.verify_is_valid_for_subject_name(name).map_err(|error| match error {
        webpki::Error::CertNotValidForName(names) => CertificateError::NotValidForNameContext {
            expected: names.expected,
            presented: names.presented,
        },
        _ => CertificateError::NotValidForName,
    })
}
