//! The identity in a certificate.

use x509_parser::asn1_rs::{Oid, Tag, oid};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::certificate::Certificate;

/// The subject of a peer's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The whole subject in the form of RFC 4514, most specific part first: `CN=alice,O=Example`.
    pub subject: String,
    /// The (most specific) common name.
    pub common_name: Option<String>,
}

impl PeerIdentity {
    /// The identity in a certificate (DER); `None` if the bytes are no certificate.
    pub fn of_certificate(der: &[u8]) -> Option<PeerIdentity> {
        Certificate::read(der).ok().map(|certificate| certificate.identity)
    }

    pub(crate) fn of_name(name: &X509Name<'_>) -> PeerIdentity {
        let mut parts: Vec<String> = name
            .iter_rdn()
            .map(|part| part.iter().map(attribute).collect::<Vec<_>>().join("+"))
            .collect();
        parts.reverse();
        PeerIdentity {
            subject: parts.join(","),
            common_name: name.iter_common_name().last().and_then(text),
        }
    }
}

/// Short names of attributes, from RFC 4514 and OpenSSL.
static NAMES: [(Oid<'static>, &str); 14] = [
    (oid!(2.5.4.3), "CN"),
    (oid!(2.5.4.4), "SN"),
    (oid!(2.5.4.5), "serialNumber"),
    (oid!(2.5.4.6), "C"),
    (oid!(2.5.4.7), "L"),
    (oid!(2.5.4.8), "ST"),
    (oid!(2.5.4.9), "street"),
    (oid!(2.5.4.10), "O"),
    (oid!(2.5.4.11), "OU"),
    (oid!(2.5.4.12), "title"),
    (oid!(2.5.4.42), "GN"),
    (oid!(0.9.2342.19200300.100.1.25), "DC"),
    (oid!(0.9.2342.19200300.100.1.1), "UID"),
    (oid!(1.2.840.113549.1.9.1), "emailAddress"),
];

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let known = NAMES.iter().find(|(oid, _)| oid == attribute.attr_type());
    let name = match known {
        Some((_, name)) => (*name).to_owned(),
        None => attribute.attr_type().to_id_string(),
    };
    match text(attribute) {
        Some(text) => format!("{name}={}", escaped(&text)),
        None => {
            let bytes = attribute.as_slice().iter();
            let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
            format!("{name}=#{hex}")
        }
    }
}

/// The value of an attribute that is a kind of text.
fn text(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    if let Ok(text) = attribute.as_str() {
        return Some(text.to_owned());
    }
    let bytes = attribute.as_slice();
    match attribute.attr_value().tag() {
        // In practice Latin-1.
        Tag::T61String => Some(bytes.iter().copied().map(char::from).collect()),
        Tag::BmpString => {
            let (units, rest) = bytes.as_chunks::<2>();
            let units: Vec<u16> = units.iter().copied().map(u16::from_be_bytes).collect();
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())
        }
        _ => None,
    }
}

/// Escapes as RFC 4514 says, and control characters too, since subjects are logged.
fn escaped(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let mut out = String::with_capacity(text.len());
    for (position, character) in text.chars().enumerate() {
        match character {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => out.extend(['\\', character]),
            '#' if position == 0 => out.push_str("\\#"),
            ' ' if position == 0 || position == last => out.push_str("\\ "),
            control if control.is_control() => {
                let mut bytes = [0; 4];
                for byte in control.encode_utf8(&mut bytes).bytes() {
                    out.push_str(&format!("\\{byte:02X}"));
                }
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::{self_signed, subject};

    #[test]
    fn a_subject_is_written_most_specific_part_first() {
        let (certificate, _) = self_signed(subject("alice", Some("Example")));
        let identity = PeerIdentity::of_certificate(certificate.der()).unwrap();
        assert_eq!(identity.subject, "CN=alice,O=Example");
        assert_eq!(identity.common_name.as_deref(), Some("alice"));
        assert_eq!(PeerIdentity::of_certificate(b"none"), None);
    }

    #[test]
    fn what_means_something_in_a_subject_is_escaped() {
        assert_eq!(escaped("a,b+c\"d\\e<f>g;h=i"), "a\\,b\\+c\\\"d\\\\e\\<f\\>g\\;h=i");
        assert_eq!((escaped("#a#"), escaped(" a b ")), ("\\#a#".into(), "\\ a b\\ ".into()));
        assert_eq!(escaped("a\n\0é\u{85}"), "a\\0A\\00é\\C2\\85");
    }
}
