//! The own certificate and its key, read from files.

use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificate::{Certificate, now_seconds};
use crate::pem_file::PemFile;
use crate::{TlsError, private_key, words};

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// PEM file with the certificate, followed by intermediate certificates.
    pub certificate: PathBuf,
    /// PEM file with the key; `None`: the key is in the certificate's file.
    pub key: Option<PathBuf>,
    /// The source of the password of an encrypted key.
    pub key_password: Option<Password>,
}

/// The source of a key's password.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// The password itself.
    Text(Vec<u8>),
    /// The first line of a file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
}

/// The own certificate with its key, and its facts.
pub(crate) struct OwnCertificate {
    pub(crate) facts: Certificate,
    pub(crate) key: CertifiedKey,
}

impl CertificateFiles {
    /// Reads both files, and checks that they match.
    pub(crate) fn load(&self, provider: &CryptoProvider) -> Result<OwnCertificate, TlsError> {
        let file = PemFile::read(&self.certificate)?;
        let chain: Vec<CertificateDer<'static>> =
            file.labelled("CERTIFICATE").map(|der| CertificateDer::from(der.to_vec())).collect();
        let own = chain.first();
        let own = own.ok_or_else(|| TlsError::NoCertificate { path: self.certificate.clone() })?;
        let facts = Certificate::read(own)
            .map_err(|reason| unusable(&self.certificate, "a certificate", &reason))?;
        let key_path = self.key.as_ref().unwrap_or(&self.certificate);
        let key = provider
            .key_provider
            .load_private_key(self.key(&file)?)
            .map_err(|_| format!("it is damaged or of another kind: {}", words::SUPPORTED_KEYS))
            .map_err(|reason| unusable(key_path, "the key", &reason))?;
        if key.public_key().is_some_and(|public| public.as_ref() != facts.public_key) {
            return Err(TlsError::OtherKey {
                key: key_path.clone(),
                certificate: self.certificate.clone(),
            });
        }
        Ok(OwnCertificate { facts, key: CertifiedKey::new(chain, key) })
    }

    /// Checks that the certificate, which these files have, is valid now.
    pub(crate) fn check_validity(&self, own: &Certificate) -> Result<(), TlsError> {
        match own.validity.failure(now_seconds()) {
            None => Ok(()),
            Some(when) => {
                let (path, subject) = (self.certificate.clone(), own.identity.subject.clone());
                Err(TlsError::NotValidNow { path, subject, when })
            }
        }
    }

    fn key(&self, certificate: &PemFile) -> Result<PrivateKeyDer<'static>, TlsError> {
        let password = || self.key_password.as_ref().map(Password::read).transpose();
        match &self.key {
            Some(path) => private_key::find(&PemFile::read(path)?, password),
            None => private_key::find(certificate, password),
        }
    }
}

/// The error for content of a file that cannot be used.
pub(crate) fn unusable(path: &Path, what: &str, reason: &dyn ToString) -> TlsError {
    let (path, what) = (path.to_owned(), what.to_owned());
    TlsError::Unusable { path, what, reason: reason.to_string() }
}

/// Shows nothing of a password itself.
impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Password::Text(_) => formatter.write_str("Text(..)"),
            Password::File(path) => formatter.debug_tuple("File").field(path).finish(),
            Password::Environment(name) => {
                formatter.debug_tuple("Environment").field(name).finish()
            }
        }
    }
}

impl Password {
    fn read(&self) -> Result<Vec<u8>, TlsError> {
        match self {
            Password::Text(text) => Ok(text.clone()),
            Password::File(path) => {
                let text = std::fs::read(path)
                    .map_err(|reason| TlsError::Unreadable { path: path.clone(), reason })?;
                let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
                Ok(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
            }
            Password::Environment(name) => std::env::var_os(name)
                .map(OsStringExt::into_vec)
                .ok_or_else(|| TlsError::NoVariable { name: name.clone() }),
        }
    }
}
