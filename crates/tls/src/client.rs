//! The TLS configuration of a client, read from files.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::sign::SingleCertAndKey;

use crate::authorities::Authorities;
use crate::own_certificate::{OwnCertificate, unusable};
use crate::peer_verifier::PeerVerifier;
use crate::server_verifier::ServerVerifier;
use crate::side::Side;
use crate::{CertificateFiles, PeerIdentity, TlsError};

/// The files of a client's TLS configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The client's certificate; without one ZEO servers reject the client.
    pub own: Option<CertificateFiles>,
    /// The servers that the client trusts.
    pub trust: Trust,
}

/// The servers that a client trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A PEM file, or a directory of them, with certificates of servers or authorities. Servers in
    /// it are trusted under any name, those of its authorities under the names they certify.
    Listed(PathBuf),
    /// The same files, but server names are not checked at all.
    ListedUnderAnyName(PathBuf),
    /// Only the server with the first certificate in a PEM file, under any name.
    Only(PathBuf),
}

/// The TLS configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    identity: Option<PeerIdentity>,
}

impl ClientTls {
    /// Reads the files.
    pub fn load(files: &ClientFiles) -> Result<ClientTls, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let own = files.own.as_ref().map(|own| own.load(&provider)).transpose()?;
        // Every server would reject these, with a less clear message.
        if let (Some(files), Some(own)) = (&files.own, &own) {
            files.check_validity(&own.facts)?;
            if !own.facts.is_for(Side::Client) {
                return Err(TlsError::NotForClients { path: files.certificate.clone() });
            }
        }
        let (path, authorities) = match &files.trust {
            Trust::Listed(path) | Trust::ListedUnderAnyName(path) => {
                (path, Authorities::read(path)?)
            }
            Trust::Only(path) => (path, Authorities::only_first(path)?),
        };
        let algorithms = provider.signature_verification_algorithms;
        let peer_verifier = PeerVerifier::new(authorities, algorithms, Side::Server);
        let any_name = matches!(files.trust, Trust::ListedUnderAnyName(_));
        let verifier = ServerVerifier::new(peer_verifier, any_name);
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(path, "TLS", &error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let (mut config, identity) = match own {
            Some(OwnCertificate { facts, key }) => {
                let resolver = Arc::new(SingleCertAndKey::from(key));
                (builder.with_client_cert_resolver(resolver), Some(facts.identity))
            }
            None => (builder.with_no_client_auth(), None),
        };
        config.resumption = Resumption::disabled();
        Ok(ClientTls { config: Arc::new(config), identity })
    }

    /// The configuration for rustls.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// The identity in the client's own certificate.
    pub fn identity(&self) -> Option<&PeerIdentity> {
        self.identity.as_ref()
    }
}
