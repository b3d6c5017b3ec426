//! Accepting connections.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, UnixListener};

use crate::Address;

/// After a failed accept (no more descriptors, say) the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A peer that vanished without a word is noticed after about this long.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);

/// A bound address.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
    address: Address,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// An accepted connection on its way to a worker.
#[derive(Debug)]
pub enum Incoming {
    /// Over TCP.
    Tcp(std::net::TcpStream),
    /// Over a Unix socket.
    Unix(std::os::unix::net::UnixStream),
}

impl Listener {
    /// Binds an address; within a tokio runtime. A Unix socket that nobody listens on any more
    /// is replaced.
    pub async fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Tcp { host, port } => {
                let host = if host.is_empty() { "0.0.0.0" } else { host };
                let listener = TcpListener::bind((host, *port)).await?;
                let bound = listener.local_addr()?;
                let address = Address::Tcp { host: bound.ip().to_string(), port: bound.port() };
                Ok(Listener { kind: Kind::Tcp(listener), address })
            }
            Address::Unix(path) => {
                remove_dead_socket(path)?;
                let kind = Kind::Unix(UnixListener::bind(path)?, path.clone());
                Ok(Listener { kind, address: address.clone() })
            }
        }
    }

    /// The address with the port that was chosen.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The next connection and who it is from. Goes on trying when the system refuses.
    pub async fn accept(&self) -> (Incoming, String) {
        loop {
            match self.try_accept().await {
                Ok(accepted) => return accepted,
                Err(error) => {
                    tracing::warn!(%error, address = %self.address, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn try_accept(&self) -> io::Result<(Incoming, String)> {
        match &self.kind {
            Kind::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE);
                SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                Ok((Incoming::Tcp(stream.into_std()?), peer.to_string()))
            }
            Kind::Unix(listener, path) => {
                let (stream, _) = listener.accept().await?;
                Ok((Incoming::Unix(stream.into_std()?), path.display().to_string()))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Unix(_, path) = &self.kind {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn remove_dead_socket(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file that is not a socket is in the way",
        )),
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => std::fs::remove_file(path),
        },
    }
}
