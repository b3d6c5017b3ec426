//! Test helpers: a folder, and certificates to put into it.

use std::path::{Path, PathBuf};

use rcgen::{Certificate, CertificateParams, DistinguishedName, DnType, KeyPair};

/// A folder of files, removed when dropped.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path: &Path = &self.path(name);
        std::fs::write(path, content).unwrap();
        path.to_owned()
    }
}

/// A subject with an optional organization and a common name.
pub(crate) fn subject(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}

/// Creates a self-signed certificate.
pub(crate) fn self_signed(subject: DistinguishedName) -> (Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    (params.self_signed(&key).unwrap(), key)
}
