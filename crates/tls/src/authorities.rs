//! Trusted certificates and revocation lists, read from a file or a directory.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustls_pki_types::{CertificateDer, TrustAnchor};

use crate::TlsError;
use crate::certificate::{Certificate, Validity, now_seconds};
use crate::pem_file::PemFile;
use crate::revocation::RevocationLists;
use crate::words;

/// Pinned certificates, trust anchors and revocation lists.
///
/// Every certificate is pinned: a peer that presents it is trusted. A certificate that may sign is
/// also a trust anchor. Others must not become anchors: their holders could then issue
/// certificates that are trusted.
#[derive(Debug, Default)]
pub(crate) struct Authorities {
    /// Pinned certificates by their DER bytes.
    pub(crate) pinned: HashMap<Vec<u8>, Certificate>,
    pub(crate) anchors: Vec<TrustAnchor<'static>>,
    /// Limits of `anchors` that webpki does not check, in the same order.
    pub(crate) anchor_limits: Vec<AnchorLimits>,
    pub(crate) revocation: RevocationLists,
}

#[derive(Debug)]
pub(crate) struct AnchorLimits {
    pub(crate) validity: Validity,
    pub(crate) intermediates_max: Option<usize>,
}

impl Authorities {
    /// Reads a PEM file, or a directory of them: files named `*.pem`, `*.crt`, `*.cer`, `*.crl`,
    /// or by hash as `openssl rehash` names them.
    pub(crate) fn read(path: &Path) -> Result<Authorities, TlsError> {
        let mut authorities = Authorities::default();
        let files = if path.is_dir() { files_of(path)? } else { vec![path.to_owned()] };
        for file in files {
            authorities.add_file(&PemFile::read(&file)?)?;
        }
        if authorities.pinned.is_empty() {
            return Err(TlsError::NoCertificate { path: path.to_owned() });
        }
        Ok(authorities)
    }

    /// Reads the first certificate of a PEM file, without those that signed it.
    pub(crate) fn only_first(path: &Path) -> Result<Authorities, TlsError> {
        let file = PemFile::read(path)?;
        let first = file.labelled("CERTIFICATE").next();
        let first = first.ok_or_else(|| TlsError::NoCertificate { path: path.to_owned() })?;
        let mut authorities = Authorities::default();
        authorities.add_certificate(path, first)?;
        // It is pinned only, even if it may sign.
        authorities.anchors.clear();
        authorities.anchor_limits.clear();
        Ok(authorities)
    }

    fn add_file(&mut self, file: &PemFile) -> Result<(), TlsError> {
        for der in file.labelled("CERTIFICATE") {
            // Symbolic links by hash lead to files that have been read already.
            if !self.pinned.contains_key(der) {
                self.add_certificate(&file.path, der)?;
            }
        }
        for der in file.labelled("X509 CRL") {
            self.revocation.add(&file.path, der)?;
        }
        Ok(())
    }

    fn add_certificate(&mut self, path: &Path, der: &[u8]) -> Result<(), TlsError> {
        let unusable = |reason| TlsError::Unusable {
            path: path.to_owned(),
            what: "a certificate".to_owned(),
            reason,
        };
        let certificate = Certificate::read(der).map_err(unusable)?;
        if let Some(when) = certificate.validity.failure(now_seconds()) {
            let (path, subject) = (path.display(), &certificate.identity.subject);
            tracing::warn!(%path, subject, "a trusted certificate {when}");
        }
        if !certificate.has_supported_key {
            let (path, subject) = (path.display(), &certificate.identity.subject);
            let why = format!("its key is of another kind: {}", words::SUPPORTED_KEYS);
            tracing::warn!(%path, subject, "a trusted certificate is of no use: {why}");
        }
        if certificate.may_sign {
            let shared = CertificateDer::from(der);
            let anchor = webpki::anchor_from_trusted_cert(&shared);
            let anchor = anchor.map_err(|error| unusable(words::of_text(&error.to_string())))?;
            self.anchors.push(anchor.to_owned());
            self.anchor_limits.push(AnchorLimits {
                validity: certificate.validity.clone(),
                intermediates_max: certificate.intermediates_max,
            });
        }
        self.pinned.insert(der.to_vec(), certificate);
        Ok(())
    }
}

fn files_of(directory: &Path) -> Result<Vec<PathBuf>, TlsError> {
    let unreadable = |reason| TlsError::Unreadable { path: directory.to_owned(), reason };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let path = entry.path();
        let name = entry.file_name();
        if !name.to_str().is_some_and(is_for_us) || path.is_dir() {
            continue;
        }
        // What `openssl rehash` leaves of a certificate that was removed.
        let target = std::fs::metadata(&path);
        if target.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            tracing::warn!(path = %path.display(), "a link that leads nowhere is passed over");
            continue;
        }
        files.push(path);
    }
    files.sort();
    Ok(files)
}

fn is_for_us(name: &str) -> bool {
    let Some((stem, end)) = name.rsplit_once('.') else { return false };
    let number = end.strip_prefix('r').unwrap_or(end);
    let is_hash = stem.len() == 8
        && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit());
    is_hash || matches!(end, "pem" | "crt" | "cer" | "crl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_signatures_are_not_checked_with_are_told_from_others() {
        for (name, is_supported) in [
            ("ec.crt", true),
            ("rsa.crt", true),
            ("v1_client.crt", true),
            ("p521.crt", false),
            ("rsa1024.crt", false),
        ] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/keys").join(name);
            let authorities = Authorities::only_first(&path).unwrap();
            let mut found = authorities.pinned.values().map(|found| found.has_supported_key);
            assert_eq!(found.next(), Some(is_supported), "{name}");
        }
    }

    #[test]
    fn files_are_known_by_their_names() {
        for name in ["ca.pem", "a.b.crt", "x.crl", "9d66eef0.0", "9d66eef0.r12", "x.cer"] {
            assert!(is_for_us(name), "{name}");
        }
        for name in ["README", "ca.pem~", "ca.key", "9d66eef0.r", "9d66eef.0", "9d66eefg.0", ""] {
            assert!(!is_for_us(name), "{name}");
        }
    }
}
