//! A server's side of TLS, made of files, and made anew when they have changed.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::SingleCertAndKey;
use rustls::{ConfigBuilder, ServerConfig, WantsVerifier};

use crate::authorities::Authorities;
use crate::client_verifier::ClientVerifier;
use crate::own_certificate::unusable;
use crate::peer_verifier::{PeerVerifier, Side};
use crate::{CertificateFiles, CertificateRejection, TlsError};

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
    loaded: ArcSwap<Loaded>,
}

/// A server's side of TLS for one connection.
#[derive(Clone, Debug)]
pub struct ServerSide {
    config: Arc<ServerConfig>,
    rejection: Arc<OnceLock<CertificateRejection>>,
}

/// What the files hold.
#[derive(Debug)]
struct Loaded {
    builder: ConfigBuilder<ServerConfig, WantsVerifier>,
    peer_verifier: Arc<PeerVerifier>,
    own: Arc<SingleCertAndKey>,
}

impl ServerTls {
    /// Reads the files.
    pub fn load(files: ServerFiles) -> Result<ServerTls, TlsError> {
        let loaded = ArcSwap::from_pointee(files.load()?);
        Ok(ServerTls { files, loaded })
    }

    /// Reads the files again. New connections are verified by what is there now; after an error
    /// by what was there before. Connections that are open stay.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.loaded.store(Arc::new(self.files.load()?));
        Ok(())
    }

    /// What the next connection is served with.
    pub fn connection(&self) -> ServerSide {
        self.loaded.load().connection()
    }
}

impl ServerSide {
    /// For rustls.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Why the client's certificate was refused, if it was.
    pub fn rejection(&self) -> Option<&CertificateRejection> {
        self.rejection.get()
    }
}

impl ServerFiles {
    fn load(&self) -> Result<Loaded, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let own = self.own.load(&provider)?;
        let authorities = Authorities::read(&self.authenticate)?;
        let algorithms = provider.signature_verification_algorithms;
        let peer_verifier = Arc::new(PeerVerifier::new(authorities, algorithms, Side::Client));
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.own.certificate, "TLS", &error))?;
        Ok(Loaded { builder, peer_verifier, own: Arc::new(SingleCertAndKey::from(own.key)) })
    }
}

impl Loaded {
    fn connection(&self) -> ServerSide {
        let rejection = Arc::default();
        let verifier = ClientVerifier::new(Arc::clone(&self.peer_verifier), Arc::clone(&rejection));
        let mut config = self
            .builder
            .clone()
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::clone(&self.own) as Arc<dyn ResolvesServerCert>);
        // A session that is resumed is not checked again: a client that was revoked meanwhile
        // would get in. Connections of ZEO are few and long, there is nothing to gain.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        ServerSide { config: Arc::new(config), rejection }
    }
}
