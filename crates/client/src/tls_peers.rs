//! The two ends of an encrypted connection, for tests.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// The configurations of a client and of a server that it trusts, `localhost`.
pub(crate) fn with_tls() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let key = own.signing_key.serialize_der().try_into().unwrap();
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let client = client.with_safe_default_protocol_versions().unwrap();
    let server = ServerConfig::builder_with_provider(provider);
    let server = server.with_safe_default_protocol_versions().unwrap();
    let server = server.with_no_client_auth().with_single_cert(vec![own.cert.into()], key);
    let client = client.with_root_certificates(roots).with_no_client_auth();
    (Arc::new(client), Arc::new(server.unwrap()))
}

/// Performs the server's part of the handshake.
pub(crate) fn accept(
    server: Arc<ServerConfig>,
    mut socket: UnixStream,
) -> StreamOwned<ServerConnection, UnixStream> {
    let mut connection = ServerConnection::new(server).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(&mut socket).unwrap();
    }
    StreamOwned::new(connection, socket)
}
