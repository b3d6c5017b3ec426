//! Peer verification.
//!
//! Key decision: a pinned certificate is trusted by its bytes, as OpenSSL does and webpki does
//! not. webpki verifies all other certificates. In both cases the signature in the handshake
//! proves that the peer has the key.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, PeerMisbehaved, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage, RawPublicKeyEntity, VerifiedPath};

use crate::authorities::Authorities;
use crate::certificate::Certificate;
use crate::revocation;
use crate::side::Side;

/// Trusts peers whose certificates are pinned, or signed by a trusted authority.
#[derive(Debug)]
pub(crate) struct PeerVerifier {
    authorities: Authorities,
    algorithms: WebPkiSupportedAlgorithms,
    peer: Side,
}

impl PeerVerifier {
    pub(crate) fn new(
        authorities: Authorities,
        algorithms: WebPkiSupportedAlgorithms,
        peer: Side,
    ) -> PeerVerifier {
        PeerVerifier { authorities, algorithms, peer }
    }

    /// Whether this certificate itself is trusted, whatever signed it.
    pub(crate) fn is_pinned(&self, certificate: &CertificateDer<'_>) -> bool {
        self.authorities.pinned.contains_key(certificate.as_ref())
    }

    pub(crate) fn check(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        match self.authorities.pinned.get(end_entity.as_ref()) {
            Some(certificate) => self.check_pinned(certificate, now),
            None => self.check_chain(end_entity, intermediates, now),
        }
    }

    fn check_pinned(&self, pinned: &Certificate, now: UnixTime) -> Result<(), CertificateError> {
        if self.authorities.revocation.has(&pinned.number) {
            return Err(CertificateError::Revoked);
        }
        if !pinned.validity.holds(seconds(now)) {
            return Err(CertificateError::Expired);
        }
        match pinned.is_for(self.peer) {
            true => Ok(()),
            false => Err(CertificateError::InvalidPurpose),
        }
    }

    fn check_chain(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        let lists = self.authorities.revocation.for_chains();
        let certificate = EndEntityCert::try_from(end_entity).map_err(reason)?;
        let path = certificate.verify_for_usage(
            self.algorithms.all,
            &self.authorities.anchors,
            intermediates,
            now,
            match self.peer {
                Side::Client => KeyUsage::client_auth(),
                Side::Server => KeyUsage::server_auth(),
            },
            revocation::options(&lists),
            Some(&|path: &VerifiedPath<'_>| self.check_anchor(path, now)),
        );
        path.map(|_| ()).map_err(reason)
    }

    /// Checks the limits of the trust anchor, of which webpki knows only name and key.
    fn check_anchor(&self, path: &VerifiedPath<'_>, now: UnixTime) -> Result<(), webpki::Error> {
        let anchors = self.authorities.anchors.iter();
        let limits = anchors.zip(&self.authorities.anchor_limits).filter(|(anchor, _)| {
            anchor.subject == path.anchor().subject
                && anchor.subject_public_key_info == path.anchor().subject_public_key_info
        });
        let between = path.intermediate_certificates().count();
        // An authority may be there twice, for example after a renewal.
        let mut known = limits.map(|(_, limits)| limits);
        let holds = known.any(|limits| {
            limits.validity.holds(seconds(now))
                && limits.intermediates_max.is_none_or(|max| between <= max)
        });
        if holds { Ok(()) } else { Err(webpki::Error::UnknownIssuer) }
    }

    pub(crate) fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = public_key(certificate)?;
        let key = RawPublicKeyEntity::try_from(&key).map_err(reason)?;
        let mapping = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let (_, algorithms) =
            mapping.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        // TLS 1.2 does not say which of them; the one for this kind of key is right.
        for algorithm in *algorithms {
            match key.verify_signature(*algorithm, message, signed.signature()) {
                Ok(()) => return Ok(HandshakeSignatureValid::assertion()),
                Err(webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_)) => {}
                Err(error) => return Err(reason(error).into()),
            }
        }
        Err(CertificateError::BadSignature.into())
    }

    pub(crate) fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = public_key(certificate)?;
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }

    pub(crate) fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The public key of a certificate. webpki cannot parse all certificates that may be pinned.
fn public_key(certificate: &CertificateDer<'_>) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let read = Certificate::read(certificate).map_err(|_| CertificateError::BadEncoding)?;
    Ok(SubjectPublicKeyInfoDer::from(read.public_key))
}

/// Maps an error of webpki to that of rustls, which decides the alert that the peer gets.
fn reason(error: webpki::Error) -> CertificateError {
    match error {
        webpki::Error::CertExpired { .. } | webpki::Error::InvalidCertValidity => {
            CertificateError::Expired
        }
        webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        webpki::Error::CertRevoked => CertificateError::Revoked,
        webpki::Error::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus,
        webpki::Error::CrlExpired { .. } => CertificateError::ExpiredRevocationList,
        webpki::Error::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        webpki::Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        error => CertificateError::Other(OtherError(std::sync::Arc::new(error))),
    }
}

pub(crate) fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}
