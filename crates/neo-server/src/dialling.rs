//! Connections that the node makes.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tracing::warn;
use zodium_neo::{Address, ConnectionId};

use crate::links::{KEEPALIVE, Links};

/// Longest time to connect.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

impl Links {
    /// Makes a connection after a pause.
    pub(crate) fn dial(&self, connection: ConnectionId, address: Address, after: Duration) {
        let this = self.this.clone();
        let task = tokio::task::spawn_local(async move {
            sleep(after).await;
            let Some(links) = this.upgrade() else { return };
            match connect(&address).await {
                Ok(stream) => links.run_dialled(connection, &address, stream).await,
                Err(error) => {
                    links.note_failure(&address, "cannot connect", error.to_string());
                    links.lost(connection);
                }
            }
        });
        self.dialling.borrow_mut().insert(connection, task.abort_handle());
    }

    async fn run_dialled(
        self: &Rc<Links>,
        connection: ConnectionId,
        address: &Address,
        stream: TcpStream,
    ) {
        let (peer, limits) = (address.to_string(), self.limits.clone());
        let Some(tls) = &self.tls else {
            self.failures.borrow_mut().remove(address);
            self.begin(connection);
            return self.host.run(stream, &peer, None, limits).await;
        };
        match tls.connect(stream).await {
            Ok(stream) => {
                self.failures.borrow_mut().remove(address);
                self.begin(connection);
                self.host.run(stream, &peer, None, limits).await;
            }
            Err(error) => {
                self.note_failure(address, "cannot make a TLS connection", error.to_string());
                self.lost(connection);
            }
        }
    }

    /// Logs why there is no connection. The node tries again each second, so the same reason is
    /// logged once.
    fn note_failure(&self, address: &Address, what: &str, reason: String) {
        let mut failures = self.failures.borrow_mut();
        if failures.get(address) != Some(&reason) {
            warn!(%address, reason, "{what}; trying again");
            failures.insert(address.clone(), reason);
        }
    }

    /// The next session that is opened is that of this connection: nothing else runs before.
    fn begin(&self, connection: ConnectionId) {
        self.dialling.borrow_mut().remove(&connection);
        self.opening.set(Some(connection));
    }
}

/// Connects to a numeric address.
pub(crate) async fn connect(address: &Address) -> io::Result<TcpStream> {
    let socket = address.to_socket_address();
    let socket = socket.ok_or_else(|| io::Error::other("the address is not numeric"))?;
    let connected = timeout(CONNECT_TIME_MAX, TcpStream::connect(socket)).await;
    let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    KEEPALIVE.prepare(&stream);
    Ok(stream)
}
