//! A server's side of TLS, made of files, and made anew when they have changed.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::authorities::Authorities;
use crate::certificate::{Certificate, now_seconds};
use crate::pem_file::PemFile;
use crate::verifier::ClientVerifier;
use crate::{TlsError, private_key};

/// Where a server's side of TLS is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// PEM file with the server's certificate, and then those between it and an authority.
    pub certificate: PathBuf,
    /// PEM file with the key; absent: it is in the certificate's file.
    pub key: Option<PathBuf>,
    /// Where the password of an encrypted key comes from.
    pub key_password: Option<Password>,
    /// PEM file, or directory of them, with the certificates of clients or of the authorities
    /// that signed them, and perhaps revocation lists.
    pub authenticate: PathBuf,
}

/// Where the password of a key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Password {
    /// The first line of a file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
}

/// A server's side of TLS.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    /// Read for each connection, replaced as a whole.
    config: ArcSwap<ServerConfig>,
}

impl ServerTls {
    /// Reads the files.
    pub fn load(files: ServerFiles) -> Result<ServerTls, TlsError> {
        let config = ArcSwap::from_pointee(files.load()?);
        Ok(ServerTls { files, config })
    }

    /// Reads the files again. New connections are judged by what is there now; after an error
    /// by what was there before. Connections that are open stay.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.config.store(Arc::new(self.files.load()?));
        Ok(())
    }

    /// What the next connection is served with.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }
}

impl ServerFiles {
    fn load(&self) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let identity = self.identity(&provider)?;
        let authorities = Authorities::read(&self.authenticate)?;
        let verifier = ClientVerifier::new(authorities, provider.signature_verification_algorithms);
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| self.unusable(&self.certificate, "TLS", &error))?;
        let mut config = builder
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
        // A session that is resumed is not checked again: whoever was revoked meanwhile would
        // get in. Connections of ZEO are few and long, there is nothing to gain.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// The server's own certificate, with its key.
    fn identity(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let file = PemFile::read(&self.certificate)?;
        let chain: Vec<CertificateDer<'static>> =
            file.labelled("CERTIFICATE").map(|der| CertificateDer::from(der.to_vec())).collect();
        let own = chain.first();
        let own = own.ok_or_else(|| TlsError::NoCertificate { path: self.certificate.clone() })?;
        let own = Certificate::read(own)
            .map_err(|reason| self.unusable(&self.certificate, "a certificate", &reason))?;
        if let Some(when) = own.validity.failure(now_seconds()) {
            let subject = own.identity.subject;
            return Err(TlsError::NotValidNow { path: self.certificate.clone(), subject, when });
        }
        let key_path = self.key.as_ref().unwrap_or(&self.certificate);
        let key = provider
            .key_provider
            .load_private_key(self.key(&file)?)
            .map_err(|error| self.unusable(key_path, "the key", &error))?;
        if key.public_key().is_some_and(|public| public.as_ref() != own.public_key) {
            return Err(TlsError::OtherKey {
                key: key_path.clone(),
                certificate: self.certificate.clone(),
            });
        }
        Ok(CertifiedKey::new(chain, key))
    }

    fn key(&self, certificate: &PemFile) -> Result<PrivateKeyDer<'static>, TlsError> {
        let password = || self.key_password.as_ref().map(Password::read).transpose();
        match &self.key {
            Some(path) => private_key::find(&PemFile::read(path)?, password),
            None => private_key::find(certificate, password),
        }
    }

    fn unusable(&self, path: &Path, what: &str, reason: &dyn ToString) -> TlsError {
        let (path, what) = (path.to_owned(), what.to_owned());
        TlsError::Unusable { path, what, reason: reason.to_string() }
    }
}

impl Password {
    fn read(&self) -> Result<Vec<u8>, TlsError> {
        match self {
            Password::File(path) => {
                let text = std::fs::read(path)
                    .map_err(|source| TlsError::Unreadable { path: path.clone(), source })?;
                let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
                Ok(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
            }
            Password::Environment(name) => std::env::var_os(name)
                .map(OsStringExt::into_vec)
                .ok_or_else(|| TlsError::NoVariable { name: name.clone() }),
        }
    }
}
