//! What we ask of a certificate beside its signatures.
//!
//! Read by a parser that takes all that people have: webpki refuses certificates of version 1
//! and ends of chains that say they are authorities, and both are pinned.

use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use crate::peer_verifier::Side;
use crate::{PeerIdentity, words};

/// A certificate's facts.
#[derive(Debug)]
pub(crate) struct Certificate {
    /// Whom it names.
    pub(crate) identity: PeerIdentity,
    pub(crate) validity: Validity,
    /// `SubjectPublicKeyInfo`, DER.
    pub(crate) public_key: Vec<u8>,
    /// Issuer's name, DER, and serial number: what a revocation list names it by.
    pub(crate) number: Number,
    /// Whether it says that it is an authority, and may sign certificates.
    pub(crate) may_sign: bool,
    /// Authorities that may stand between it and the end of a chain.
    pub(crate) intermediates_max: Option<usize>,
    /// Whether it may be shown by clients: nothing is said about its use, or that.
    is_for_clients: bool,
    /// Whether it may be shown by servers.
    is_for_servers: bool,
}

/// What a revocation list names a certificate by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Number {
    /// The issuer's name, DER.
    pub(crate) issuer: Vec<u8>,
    /// Content of the serial number, as it was encoded.
    pub(crate) serial: Vec<u8>,
}

/// From when to when a certificate is valid, both included.
#[derive(Clone, Debug)]
pub(crate) struct Validity {
    not_before: ASN1Time,
    not_after: ASN1Time,
}

impl Certificate {
    /// Reads DER; the error says what is wrong with it.
    pub(crate) fn read(der: &[u8]) -> Result<Certificate, String> {
        let (rest, parsed) =
            parse_x509_certificate(der).map_err(|error| words::of_parsing(&error))?;
        if !rest.is_empty() {
            return Err(format!("{} bytes follow it", rest.len()));
        }
        let constraints = parsed.basic_constraints().map_err(|error| words::of_content(&error))?;
        let intermediates_max = constraints.and_then(|found| found.value.path_len_constraint);
        let usage = parsed.extended_key_usage().map_err(|error| words::of_content(&error))?;
        Ok(Certificate {
            identity: PeerIdentity::of_name(parsed.subject()),
            validity: Validity {
                not_before: parsed.validity().not_before,
                not_after: parsed.validity().not_after,
            },
            public_key: parsed.public_key().raw.to_vec(),
            number: Number {
                issuer: parsed.issuer().as_raw().to_vec(),
                serial: parsed.raw_serial().to_vec(),
            },
            may_sign: may_sign(&parsed)?,
            intermediates_max: intermediates_max.and_then(|max| usize::try_from(max).ok()),
            is_for_clients: usage.as_ref().is_none_or(|found| found.value.client_auth),
            is_for_servers: usage.as_ref().is_none_or(|found| found.value.server_auth),
        })
    }

    /// Whether this side may show it.
    pub(crate) fn is_for(&self, side: Side) -> bool {
        match side {
            Side::Client => self.is_for_clients,
            Side::Server => self.is_for_servers,
        }
    }
}

fn may_sign(parsed: &X509Certificate<'_>) -> Result<bool, String> {
    let usage = parsed.key_usage().map_err(|error| words::of_content(&error))?;
    Ok(parsed.is_ca() && usage.is_none_or(|found| found.value.key_cert_sign()))
}

impl Validity {
    pub(crate) fn holds(&self, now_seconds: i64) -> bool {
        self.failure(now_seconds).is_none()
    }

    /// What is wrong with it at this time, in seconds since the Unix epoch.
    pub(crate) fn failure(&self, now_seconds: i64) -> Option<String> {
        if now_seconds < self.not_before.timestamp() {
            return Some(format!("is not valid before {}", self.not_before));
        }
        (now_seconds > self.not_after.timestamp()).then(|| format!("expired on {}", self.not_after))
    }
}

/// Seconds since the Unix epoch.
pub(crate) fn now_seconds() -> i64 {
    ASN1Time::now().timestamp()
}
