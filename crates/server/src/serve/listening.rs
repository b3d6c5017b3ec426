//! The addresses of a server: bound before storages are opened, and listened on afterwards.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use listenfd::ListenFd;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use zodium_net::{Bound, Listener, Workers};
use zodium_tls::ServerTls;
use zodium_types::Address;

use crate::listen_error::cannot_listen;

/// How often a server looks whether its Unix sockets are still there.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Binds all addresses. Must be called within a tokio runtime.
///
/// Sockets from a service manager (`LISTEN_FDS`) are used instead, if there are any: with socket
/// activation its unit has the addresses.
pub(crate) async fn bind(addresses: &[Address]) -> Result<Vec<Bound>> {
    let bound = inherited(&mut ListenFd::from_env())?;
    if bound.is_empty() { bind_each(addresses).await } else { Ok(bound) }
}

/// As [`bind`], whatever a service manager has.
pub(super) async fn bind_each(addresses: &[Address]) -> Result<Vec<Bound>> {
    let mut bound = Vec::new();
    for address in addresses {
        let taken = Bound::bind_all(address, &bound).await;
        bound.extend(taken.map_err(|error| cannot_listen(address, error))?);
    }
    Ok(bound)
}

fn inherited(sockets: &mut ListenFd) -> Result<Vec<Bound>> {
    let mut bound = Vec::new();
    for number in 0..sockets.len() {
        let taken = match sockets.take_tcp_listener(number) {
            Ok(Some(listener)) => Bound::inherited_tcp(listener),
            // A descriptor that was taken already: each number occurs once.
            Ok(None) => continue,
            Err(_) => match sockets.take_unix_listener(number) {
                Ok(Some(listener)) => Bound::inherited_unix(listener),
                Ok(None) => continue,
                Err(error) => Err(error),
            },
        };
        bound.push(taken.with_context(|| {
            format!(
                "socket {number} of LISTEN_FDS cannot be used (expected a TCP or a Unix stream \
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
        let listener = bound.listen().map_err(|error| cannot_listen(&address, error))?;
        Ok(match tls {
            Some(tls) => listener.with_tls(Arc::clone(tls)),
            None => listener,
        })
    };
    bound.into_iter().map(listen).collect()
}

/// The tasks that hand new connections to workers.
pub(crate) struct Accepting {
    tasks: Vec<JoinHandle<()>>,
    /// Has them look for their sockets.
    look: Arc<Notify>,
}

impl Accepting {
    /// Accepts on all listeners, until stopped.
    pub(crate) fn start(listeners: Vec<Listener>, workers: &Arc<Workers>) -> Accepting {
        let look = Arc::<Notify>::default();
        let accept = |mut listener: Listener| {
            let (workers, asked) = (Arc::clone(workers), Arc::clone(&look));
            tokio::spawn(async move {
                let mut looks = tokio::time::interval(LOOK_INTERVAL);
                loop {
                    tokio::select! {
                        (incoming, peer) = listener.accept() => workers.assign(incoming, peer),
                        () = asked.notified() => listener.mend(),
                        _ = looks.tick() => listener.mend(),
                    }
                }
            })
        };
        Accepting { tasks: listeners.into_iter().map(accept).collect(), look }
    }

    /// Looks whether the sockets are still there.
    pub(crate) fn look(&self) {
        self.look.notify_waiters();
    }

    /// Closes the listeners.
    pub(crate) async fn stop(self) {
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            // Aborting the task closed its listener.
            let _ = task.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_bound_address_is_kept_from_others_and_can_be_bound_after_a_restart() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let first = Bound::bind(&any).await.unwrap();
            let address = first.address().clone();
            let refused = Bound::bind(&address).await.unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
            let listening = listen(vec![first], None).unwrap();
            assert!(Bound::bind(&address).await.is_err());
            // The connection that the server closes occupies the port for a while.
            let client = TcpStream::connect(address.to_string()).unwrap();
            drop(listening[0].accept().await);
            drop((client, listening));
            let second = Bound::bind(&address).await.unwrap();
            assert!(listen(vec![second], None).is_ok());
        });
    }
}
