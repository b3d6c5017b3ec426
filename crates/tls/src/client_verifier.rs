//! What rustls asks a server about its clients.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::certificate::Certificate;
use crate::judgement::{Judge, Side, in_words, seconds};

/// Characters of the subject of a refused certificate that are logged.
const SUBJECT_SHOWN_MAX: usize = 200;

/// Believes the clients that its judge believes, and logs why it does not believe others.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    judge: Judge,
}

impl ClientVerifier {
    /// `judge` judges clients.
    pub(crate) fn new(judge: Judge) -> ClientVerifier {
        ClientVerifier { judge }
    }
}

impl ClientCertVerifier for ClientVerifier {
    /// None: a client that has a certificate is to show it.
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
        match self.judge.check(end_entity, intermediates, now) {
            Ok(()) => Ok(ClientCertVerified::assertion()),
            Err(error) => {
                // Its sender may be anybody, and write what he likes.
                let subject = format!("{:.SUBJECT_SHOWN_MAX$}", read.identity.subject);
                let when = read.validity.failure(seconds(now));
                let reason = when.unwrap_or_else(|| in_words(&error, Side::Client));
                tracing::info!(subject, reason, "refused a client's certificate");
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
        self.judge.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.judge.supported_verify_schemes()
    }
}
