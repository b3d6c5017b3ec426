//! The error of an address that the server cannot listen on.

use std::io;

use anyhow::anyhow;
use zodium_types::Address;

/// Explains why the server cannot listen on an address, and what to do about it.
pub(crate) fn cannot_listen(address: &Address, error: io::Error) -> anyhow::Error {
    let advice = advice(address, error.kind());
    anyhow!("cannot listen on {address}: {error}{advice}")
}

fn advice(address: &Address, kind: io::ErrorKind) -> &'static str {
    let is_tcp = matches!(address, Address::Tcp { .. });
    match kind {
        io::ErrorKind::AddrInUse => {
            ". Another process listens there, or will once it has started, perhaps another server \
             of the same database: stop that one, or pass another address (`ss -ltnp` and \
             `ss -lxp` show processes by address)"
        }
        io::ErrorKind::PermissionDenied if is_tcp => {
            ". Ports below 1024 are for privileged processes: pass a higher port, or let systemd \
             listen for it (a .socket unit; docs/operating.md), or give the server the capability \
             CAP_NET_BIND_SERVICE (AmbientCapabilities= of systemd, without PrivateUsers=)"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_the_address_and_what_to_do() {
        let refused = |address: &str, kind: io::ErrorKind| {
            cannot_listen(&address.parse().unwrap(), kind.into()).to_string()
        };
        let text = refused("127.0.0.1:80", io::ErrorKind::PermissionDenied);
        assert!(text.starts_with("cannot listen on 127.0.0.1:80: permission denied"), "{text}");
        assert!(text.contains("below 1024") && text.contains("CAP_NET_BIND_SERVICE"), "{text}");
        let text = refused("/run/zeo.sock", io::ErrorKind::PermissionDenied);
        assert!(text.contains("/run/zeo.sock") && !text.contains("1024"), "{text}");
        let text = refused("10.1.2.3:8100", io::ErrorKind::AddrNotAvailable);
        assert!(text.contains("no such address"), "{text}");
    }
}
