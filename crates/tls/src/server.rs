//! A server's side of TLS, made of files, and made anew when they have changed.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::NoServerSessionStorage;
use rustls::sign::SingleCertAndKey;

use crate::authorities::Authorities;
use crate::client_verifier::ClientVerifier;
use crate::judgement::{Judge, Side};
use crate::own_certificate::unusable;
use crate::{CertificateFiles, TlsError};

/// Where a server's side of TLS is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// What the server shows.
    pub own: CertificateFiles,
    /// PEM file, or directory of them, with the certificates of clients or of the authorities
    /// that signed them, and perhaps revocation lists.
    pub authenticate: PathBuf,
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
        let own = self.own.load(&provider)?;
        let authorities = Authorities::read(&self.authenticate)?;
        let algorithms = provider.signature_verification_algorithms;
        let verifier = ClientVerifier::new(Judge::new(authorities, algorithms, Side::Client));
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.own.certificate, "TLS", &error))?;
        let mut config = builder
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(own.key)));
        // A session that is resumed is not checked again: whoever was revoked meanwhile would
        // get in. Connections of ZEO are few and long, there is nothing to gain.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}
