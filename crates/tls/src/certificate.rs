//! Facts of a certificate that are checked beside its signatures.
//!
//! They come from a parser that takes more than webpki: certificates of version 1, and end
//! entities that are marked as authorities. Users pin both kinds.

use rustls::crypto::ring;
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;
use x509_parser::public_key::PublicKey;
use x509_parser::time::ASN1Time;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::side::Side;
use crate::{PeerIdentity, words};

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// A certificate's facts.
#[derive(Debug)]
pub(crate) struct Certificate {
    /// The identity of its subject.
    pub(crate) identity: PeerIdentity,
    pub(crate) validity: Validity,
    /// `SubjectPublicKeyInfo`, DER.
    pub(crate) public_key: Vec<u8>,
    /// Whether signatures that are made with its key can be checked.
    pub(crate) has_supported_key: bool,
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
            has_supported_key: is_supported(parsed.public_key()),
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

fn is_supported(key: &SubjectPublicKeyInfo<'_>) -> bool {
    const RSA_BITS_LEAST: usize = 2048;
    // The key is a sequence that begins with the sequence of its algorithm.
    let content = match key.raw {
        [0x30, 0..=0x7f, content @ ..] => content,
        [0x30, length, content @ ..] => {
            content.get(usize::from(length & 0x7f)..).unwrap_or_default()
        }
        _ => return false,
    };
    let known = ring::default_provider().signature_verification_algorithms.all;
    let is_known = known.iter().any(|known| {
        let name = known.public_key_alg_id();
        matches!(content, [0x30, _, content @ ..] if content.starts_with(name.as_ref()))
    });
    let is_short = |key: PublicKey<'_>| match key {
        PublicKey::RSA(key) => key.key_size() < RSA_BITS_LEAST,
        _ => false,
    };
    is_known && !key.parsed().is_ok_and(is_short)
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

    /// The last second in which it is valid, since the Unix epoch.
    pub(crate) fn not_after_seconds(&self) -> i64 {
        self.not_after.timestamp()
    }

    /// When it expires, if that is soon: in less than 30 days, or in less than a fifth of its time.
    /// Certificates that are renewed automatically are, by then.
    pub(crate) fn approaching_end(&self, now_seconds: i64) -> Option<String> {
        let lifetime = self.not_after.timestamp() - self.not_before.timestamp();
        let left = self.not_after.timestamp() - now_seconds;
        let is_soon = left < (30 * DAY_SECONDS).min(lifetime / 5);
        is_soon.then(|| format!("expires on {}, in {} days", self.not_after, left / DAY_SECONDS))
    }
}

/// The current time in seconds since the Unix epoch.
pub(crate) fn now_seconds() -> i64 {
    ASN1Time::now().timestamp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_near_for_its_last_fifth_and_30_days_at_most() {
        let day = |day: i64| ASN1Time::from_timestamp(day * DAY_SECONDS).unwrap();
        for (lifetime, last_quiet, told) in [
            (365, 335, "in 29 days"),
            (3650, 3620, "in 29 days"),
            (90, 72, "in 17 days"),
            (5, 4, "in 0 days"),
        ] {
            let validity = Validity { not_before: day(0), not_after: day(lifetime) };
            let end = |second| validity.approaching_end(last_quiet * DAY_SECONDS + second);
            assert_eq!(end(0), None, "{lifetime}");
            let said = end(1).unwrap();
            assert!(said.starts_with("expires on ") && said.ends_with(told), "{said}");
        }
    }
}
