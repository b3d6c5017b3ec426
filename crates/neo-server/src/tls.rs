//! TLS between the nodes of a cluster: both sides have certificates; names do not matter.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsConnector, rustls};
use zodium_tls::{
    CertificateFiles, ClientFiles, ClientTls, ServerFiles, ServerTls, TlsError, Trust,
};

/// Longest time of a handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// The certificates of a node.
#[derive(Debug)]
pub struct NodeTls {
    accepting: Arc<ServerTls>,
    files: ClientFiles,
    /// Loaded for each connection, replaced as a whole.
    dialling: Mutex<ClientTls>,
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
        let files = ClientFiles { own: Some(own), trust };
        let dialling = Mutex::new(ClientTls::load(&files)?);
        Ok(NodeTls { accepting: Arc::new(accepting), files, dialling })
    }

    /// Reads the files again, for new connections in both directions.
    ///
    /// After an error the previous content stays in use. Open connections are not affected.
    pub fn reload(&self) -> Result<(), TlsError> {
        let dialling = ClientTls::load(&self.files)?;
        self.accepting.reload()?;
        *self.dialling.lock() = dialling;
        Ok(())
    }

    /// The side of the node that is dialled, which knows when the certificate expires.
    pub fn accepting(&self) -> Arc<ServerTls> {
        Arc::clone(&self.accepting)
    }

    /// Performs the side of the node that dials.
    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::IpAddress(stream.peer_addr()?.ip().into());
        let connector = TlsConnector::from(self.dialling.lock().config());
        let handshake = connector.connect(name, stream);
        let done = timeout(HANDSHAKE_TIME_MAX, handshake).await.map_err(|_| slow())?;
        done.map_err(explained)
    }
}

/// Says what the error of a handshake with a node without TLS means.
fn explained(error: io::Error) -> io::Error {
    let not_tls = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
    match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(reason) if *reason == not_tls => io::Error::other(
            "the peer does not speak TLS; configure TLS for all nodes of the cluster, or for none",
        ),
        _ => error,
    }
}

fn slow() -> io::Error {
    let seconds = HANDSHAKE_TIME_MAX.as_secs();
    io::Error::new(io::ErrorKind::TimedOut, format!("no TLS handshake within {seconds} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_without_tls_is_named_as_such() {
        let of = |message| io::Error::other(rustls::Error::InvalidMessage(message));
        let text = explained(of(rustls::InvalidMessage::InvalidContentType)).to_string();
        assert!(text.starts_with("the peer does not speak TLS"), "{text}");
        let text = explained(of(rustls::InvalidMessage::InvalidCcs)).to_string();
        assert!(text.contains("InvalidCcs"), "{text}");
    }
}
