//! Connections that other nodes make.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::driver::Driver;
use crate::sockets::prepare;

/// Pause after a failed accept, for example when no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Driver {
    pub(crate) async fn accept(self: Rc<Driver>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let driver = Rc::clone(&self);
                    tokio::task::spawn_local(
                        async move { driver.run_accepted(stream, peer).await },
                    );
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn run_accepted(self: Rc<Driver>, stream: TcpStream, peer: SocketAddr) {
        prepare(&stream);
        let (peer, limits) = (peer.to_string(), self.limits.clone());
        let Some(tls) = &self.tls else { return self.host.run(stream, &peer, None, limits).await };
        match tls.accept(stream).await {
            Ok(stream) => self.host.run(stream, &peer, None, limits).await,
            Err(error) => info!(peer, %error, "TLS handshake failed"),
        }
    }
}
