//! The addresses of a server: taken before storages are opened, listened on when they are.

use std::io;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use listenfd::ListenFd;
use tokio::task::JoinHandle;
use zodium_net::{Bound, Listener, Workers};
use zodium_tls::ServerTls;
use zodium_types::Address;

/// Takes all addresses; within a tokio runtime.
///
/// Sockets that a service manager hands over (`LISTEN_FDS`) are used instead: who activates a
/// server by its sockets says there where it listens.
pub(crate) async fn bind(addresses: &[Address]) -> Result<Vec<Bound>> {
    let mut bound = inherited(&mut ListenFd::from_env())?;
    if bound.is_empty() {
        for address in addresses {
            let taken = Bound::bind(address).await;
            bound.push(taken.map_err(|error| refused(address, error))?);
        }
    }
    Ok(bound)
}

fn inherited(sockets: &mut ListenFd) -> Result<Vec<Bound>> {
    let mut bound = Vec::new();
    for number in 0..sockets.len() {
        let taken = match sockets.take_tcp_listener(number) {
            Ok(Some(listener)) => Bound::inherited_tcp(listener),
            // Already taken: there are no two of one number.
            Ok(None) => continue,
            Err(_) => match sockets.take_unix_listener(number) {
                Ok(Some(listener)) => Bound::inherited_unix(listener),
                Ok(None) => continue,
                Err(error) => Err(error),
            },
        };
        bound.push(taken.with_context(|| {
            format!(
                "socket {number} of LISTEN_FDS is of no use (expected a TCP or a Unix stream \
                 socket that is listened on)"
            )
        })?);
    }
    Ok(bound)
}

/// Listens on all addresses, with TLS on all or none.
pub(crate) fn listen(bound: Vec<Bound>, tls: Option<&Arc<ServerTls>>) -> Result<Vec<Listener>> {
    let listen = |bound: Bound| {
        let address = bound.address().clone();
        let listener = bound.listen().map_err(|error| refused(&address, error))?;
        Ok(match tls {
            Some(tls) => listener.with_tls(Arc::clone(tls)),
            None => listener,
        })
    };
    bound.into_iter().map(listen).collect()
}

/// Why an address cannot be listened on, and what to do about it.
pub(crate) fn refused(address: &Address, error: io::Error) -> anyhow::Error {
    let advice = advice(address, error.kind());
    anyhow!("cannot listen on {address}: {error}{advice}")
}

fn advice(address: &Address, kind: io::ErrorKind) -> &'static str {
    let is_tcp = matches!(address, Address::Tcp { .. });
    match kind {
        io::ErrorKind::AddrInUse => {
            ". Another process listens there, perhaps another server of the same database: stop \
             that one, or pass another address (`ss -ltnp` and `ss -lxp` show processes by \
             address)"
        }
        io::ErrorKind::PermissionDenied if is_tcp => {
            ". Ports below 1024 are for privileged processes: pass a higher port, or give the \
             server the capability CAP_NET_BIND_SERVICE (AmbientCapabilities= of systemd), or \
             let systemd listen for it (a .socket unit)"
        }
        io::ErrorKind::PermissionDenied => {
            ". The user that runs the server has to be allowed to write to the socket's folder"
        }
        io::ErrorKind::AddrNotAvailable => {
            ". This machine has no such address (`ip address` shows those it has); 0.0.0.0:PORT \
             is all of them"
        }
        _ => "",
    }
}

/// Tasks that hand new connections to workers.
pub(crate) struct Accepting {
    tasks: Vec<JoinHandle<()>>,
}

impl Accepting {
    /// Accepts on all listeners, until stopped.
    pub(crate) fn start(listeners: Vec<Listener>, workers: &Arc<Workers>) -> Accepting {
        let accept = |listener: Listener| {
            let workers = Arc::clone(workers);
            tokio::spawn(async move {
                loop {
                    let (incoming, peer) = listener.accept().await;
                    workers.assign(incoming, peer);
                }
            })
        };
        Accepting { tasks: listeners.into_iter().map(accept).collect() }
    }

    /// Closes the listeners.
    pub(crate) async fn stop(self) {
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            // Aborted, and with that its listener is closed.
            let _ = task.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_had_is_named_with_what_to_do() {
        let refused = |address: &str, kind: io::ErrorKind| {
            refused(&address.parse().unwrap(), kind.into()).to_string()
        };
        let text = refused("127.0.0.1:80", io::ErrorKind::PermissionDenied);
        assert!(text.starts_with("cannot listen on 127.0.0.1:80: permission denied"), "{text}");
        assert!(text.contains("below 1024") && text.contains("CAP_NET_BIND_SERVICE"), "{text}");
        let text = refused("/run/zeo.sock", io::ErrorKind::PermissionDenied);
        assert!(text.contains("/run/zeo.sock") && !text.contains("1024"), "{text}");
        let text = refused("10.1.2.3:8100", io::ErrorKind::AddrNotAvailable);
        assert!(text.contains("no such address"), "{text}");
    }

    #[test]
    fn a_server_that_was_faster_is_noticed_as_late_as_at_listening() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let first = Bound::bind(&any).await.unwrap();
            let address = first.address().clone();
            let second = Bound::bind(&address).await.unwrap();
            let _listening = listen(vec![first], None).unwrap();
            let text = listen(vec![second], None).unwrap_err().to_string();
            assert!(text.starts_with(&format!("cannot listen on {address}: ")), "{text}");
            assert!(text.contains("Another process listens there"), "{text}");
        });
    }
}
