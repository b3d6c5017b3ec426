//! TLS between the nodes of a cluster: both sides have certificates; names do not matter.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zodium_tls::{
    CertificateFiles, ClientFiles, ClientTls, ServerFiles, ServerTls, TlsError, Trust,
};

/// Longest time of a handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// The certificates of a node.
#[derive(Debug)]
pub struct NodeTls {
    accepting: Arc<ServerTls>,
    dialling: ClientTls,
}

impl NodeTls {
    /// Reads the files: the authority of the cluster, the certificate of the node, and its key.
    pub fn load(authority: &Path, certificate: &Path, key: &Path) -> Result<NodeTls, TlsError> {
        let own = CertificateFiles {
            certificate: certificate.to_owned(),
            key: Some(key.to_owned()),
            key_password: None,
        };
        let accepting =
            ServerTls::load(ServerFiles { own: own.clone(), authenticate: authority.to_owned() })?;
        // NEO's certificates have no names in them.
        let trust = Trust::ListedUnderAnyName(authority.to_owned());
        let dialling = ClientTls::load(&ClientFiles { own: Some(own), trust })?;
        Ok(NodeTls { accepting: Arc::new(accepting), dialling })
    }

    /// The side of the node that is dialled.
    pub(crate) fn accepting(&self) -> Arc<ServerTls> {
        Arc::clone(&self.accepting)
    }

    /// Performs the side of the node that dials.
    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::IpAddress(stream.peer_addr()?.ip().into());
        let connector = TlsConnector::from(Arc::clone(&self.dialling.config()));
        let handshake = connector.connect(name, stream);
        timeout(HANDSHAKE_TIME_MAX, handshake).await.map_err(|_| slow())?
    }
}

fn slow() -> io::Error {
    let seconds = HANDSHAKE_TIME_MAX.as_secs();
    io::Error::new(io::ErrorKind::TimedOut, format!("no TLS handshake within {seconds} s"))
}
