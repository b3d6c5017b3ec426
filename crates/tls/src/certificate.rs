//! Facts of a certificate that are checked beside its signatures.
//!
//! They come from a parser that takes more than webpki: certificates of version 1, and end
//! entities that are marked as authorities. Users pin both kinds.

use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use crate::side::Side;
use crate::{PeerIdentity, words};

/// A certificate's facts.
#[derive(Debug)]
pub(crate) struct Certificate {
    /// The identity of its subject.
    pub(crate) identity: PeerIdentity,
    pub(crate) validity: Validity,
    /// `SubjectPublicKeyInfo`, DER.
    pub(crate) public_key: Vec<u8>,
    /// Its issuer and serial number, which revocation lists name it by.
    pub(crate) number: Number,
    /// Whether it is marked as an authority that may sign certificates.
    pub(crate) may_sign: bool,
    /// Most intermediate authorities between it and the end entity of a chain.
    pub(crate) intermediates_max: Option<usize>,
    /// Whether clients may present it: its extended key usage is absent, or includes them.
    is_for_clients: bool,
    /// The same for servers.
    is_for_servers: bool,
}

/// Issuer and serial number, which revocation lists name a certificate by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Number {
    /// The issuer's name, DER.
    pub(crate) issuer: Vec<u8>,
    /// Content of the serial number, as it was encoded.
    pub(crate) serial: Vec<u8>,
}

/// The validity period of a certificate, both ends included.
#[derive(Clone, Debug)]
pub(crate) struct Validity {
    not_before: ASN1Time,
    not_after: ASN1Time,
}

impl Certificate {
    /// Parses DER; the error says what is wrong with it.
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

    /// Whether this side may present it.
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

    /// Why it is not valid at this time (seconds since the Unix epoch); `None` if it is.
    pub(crate) fn failure(&self, now_seconds: i64) -> Option<String> {
        if now_seconds < self.not_before.timestamp() {
            return Some(format!("is not valid before {}", self.not_before));
        }
        (now_seconds > self.not_after.timestamp()).then(|| format!("expired on {}", self.not_after))
    }
}

/// The current time in seconds since the Unix epoch.
pub(crate) fn now_seconds() -> i64 {
    ASN1Time::now().timestamp()
}
