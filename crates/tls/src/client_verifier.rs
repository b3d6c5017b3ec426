//! What rustls asks a server about its clients.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::ClientRefusal;
use crate::certificate::Certificate;
use crate::judgement::{Judge, Side, in_words, seconds};

/// Characters of the subject of a refused certificate that are logged.
const SUBJECT_SHOWN_MAX: usize = 200;

/// Believes a client that its judge believes, and notes why it does not believe another.
///
/// Of one connection: rustls tells the server only that the certificate was refused.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    judge: Arc<Judge>,
    refusal: Arc<OnceLock<ClientRefusal>>,
}

impl ClientVerifier {
    /// `judge` judges clients; `refusal` is where the reason is noted.
    pub(crate) fn new(judge: Arc<Judge>, refusal: Arc<OnceLock<ClientRefusal>>) -> ClientVerifier {
        ClientVerifier { judge, refusal }
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
                // The client chooses the text of the subject.
                let subject = format!("{:.SUBJECT_SHOWN_MAX$}", read.identity.subject);
                let when = read.validity.failure(seconds(now));
                let reason = when.unwrap_or_else(|| in_words(&error, Side::Client));
                // A client is asked for its certificate once.
                let _ = self.refusal.set(ClientRefusal { subject, reason });
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
