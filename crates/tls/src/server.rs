//! The TLS configuration of a server, read from files that can be reloaded.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::SingleCertAndKey;
use rustls::{ConfigBuilder, ServerConfig, WantsVerifier};

use crate::authorities::Authorities;
use crate::certificate::{Certificate, now_seconds};
use crate::client_verifier::ClientVerifier;
use crate::own_certificate::{OwnCertificate, unusable};
use crate::peer_verifier::PeerVerifier;
use crate::side::Side;
use crate::{CertificateFiles, CertificateRejection, TlsError};

/// The files of a server's TLS configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The server's certificate.
    pub own: CertificateFiles,
    /// A PEM file, or a directory of them, with certificates of clients or authorities, and
    /// optional revocation lists.
    pub authenticate: PathBuf,
}

/// The TLS configuration of a server.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    /// Loaded for each connection, replaced as a whole.
    loaded: ArcSwap<Loaded>,
}

/// The TLS configuration of one connection of a server.
#[derive(Clone, Debug)]
pub struct ServerSide {
    config: Arc<ServerConfig>,
    rejection: Arc<OnceLock<CertificateRejection>>,
}

/// The content of the files.
#[derive(Debug)]
struct Loaded {
    builder: ConfigBuilder<ServerConfig, WantsVerifier>,
    peer_verifier: Arc<PeerVerifier>,
    own: Arc<SingleCertAndKey>,
    /// Those of the own certificate.
    facts: Certificate,
}

impl ServerTls {
    /// Reads the files. A certificate that is not valid now is one, with a warning: the clock of a
    /// machine may be set only after its start.
    pub fn load(files: ServerFiles) -> Result<ServerTls, TlsError> {
        let loaded = ArcSwap::from_pointee(files.load()?);
        let tls = ServerTls { files, loaded };
        tls.warn_of_expiry();
        Ok(tls)
    }

    /// Reads the files again, for new connections.
    ///
    /// After an error the previous content stays in use. Open connections are not affected.
    pub fn reload(&self) -> Result<(), TlsError> {
        let loaded = self.files.load()?;
        self.files.own.check_validity(&loaded.facts)?;
        self.loaded.store(Arc::new(loaded));
        self.warn_of_expiry();
        Ok(())
    }

    /// Logs a warning if the own certificate is not valid now, or will soon expire.
    pub fn warn_of_expiry(&self) {
        if let Some(note) = self.note() {
            tracing::warn!("{note}");
        }
    }

    /// The last second in which the own certificate is valid, since the Unix epoch.
    pub fn not_after_seconds(&self) -> i64 {
        self.loaded.load().facts.validity.not_after_seconds()
    }

    /// A sentence about the own certificate, if it is not valid now, or will soon expire.
    pub fn note(&self) -> Option<String> {
        let loaded = self.loaded.load();
        if let Err(error) = self.files.own.check_validity(&loaded.facts) {
            return Some(format!("{error}: clients refuse it, unless the clock is wrong"));
        }
        let end = loaded.facts.validity.approaching_end(now_seconds())?;
        let (path, subject) =
            (self.files.own.certificate.display(), &loaded.facts.identity.subject);
        Some(format!(
            "{path}: the certificate of {subject} {end}, and clients refuse it from then on: renew \
             it, and send SIGUSR2"
        ))
    }

    /// The configuration of the next connection.
    pub fn connection(&self) -> ServerSide {
        self.loaded.load().connection()
    }
}

impl ServerSide {
    /// The configuration for rustls.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Why the client's certificate was rejected, if it was.
    pub fn rejection(&self) -> Option<&CertificateRejection> {
        self.rejection.get()
    }
}

impl ServerFiles {
    fn load(&self) -> Result<Loaded, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let OwnCertificate { facts, key } = self.own.load(&provider)?;
        let authorities = Authorities::read(&self.authenticate)?;
        let algorithms = provider.signature_verification_algorithms;
        let peer_verifier = Arc::new(PeerVerifier::new(authorities, algorithms, Side::Client));
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.own.certificate, "TLS", &error))?;
        let own = Arc::new(SingleCertAndKey::from(key));
        Ok(Loaded { builder, peer_verifier, own, facts })
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
        // A resumed session is not verified again: a client revoked meanwhile would get in. ZEO
        // connections are few and long, so resumption would gain nothing.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        ServerSide { config: Arc::new(config), rejection }
    }
}
