//! Connections that the node makes.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tracing::debug;
use zodium_neo::Address;
use zodium_neo_storage::ConnectionId;

use crate::driver::{Driver, KEEPALIVE};

/// Longest time to connect.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

impl Driver {
    pub(crate) fn dial(
        self: &Rc<Driver>,
        connection: ConnectionId,
        address: Address,
        after: Duration,
    ) {
        let driver = Rc::clone(self);
        let task = tokio::task::spawn_local(async move {
            sleep(after).await;
            match connect(&address).await {
                Ok(stream) => driver.run_dialled(connection, &address, stream).await,
                Err(error) => {
                    debug!(%address, %error, "cannot connect");
                    driver.lost(connection);
                }
            }
        });
        self.dialling.borrow_mut().insert(connection, task.abort_handle());
    }

    async fn run_dialled(
        self: &Rc<Driver>,
        connection: ConnectionId,
        address: &Address,
        stream: TcpStream,
    ) {
        let (peer, limits) = (address.to_string(), self.limits.clone());
        let Some(tls) = &self.tls else {
            self.begin(connection);
            return self.host.run(stream, &peer, None, limits).await;
        };
        match tls.connect(stream).await {
            Ok(stream) => {
                self.begin(connection);
                self.host.run(stream, &peer, None, limits).await;
            }
            Err(error) => {
                debug!(%address, %error, "no TLS connection");
                self.lost(connection);
            }
        }
    }

    /// The next session that is opened is that of this connection: nothing else runs before.
    fn begin(&self, connection: ConnectionId) {
        self.dialling.borrow_mut().remove(&connection);
        self.opening.set(Some(connection));
    }
}

async fn connect(address: &Address) -> io::Result<TcpStream> {
    let socket = address.to_socket_address();
    let socket = socket.ok_or_else(|| io::Error::other("the address is not numeric"))?;
    let connected = timeout(CONNECT_TIME_MAX, TcpStream::connect(socket)).await;
    let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    KEEPALIVE.prepare(&stream);
    Ok(stream)
}
