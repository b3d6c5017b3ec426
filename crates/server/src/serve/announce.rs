//! Announces that a server serves: in the log, and on standard output.

use std::net::IpAddr;

use bytesize::ByteSize;
use tracing::{info, warn};
use zodium_configuration::LogFormat;
use zodium_filestorage::Magic;
use zodium_net::Listener;
use zodium_types::{Address, Tid};

use super::storages::{OpenStorage, Storages};
use crate::streams::greet;

/// The storage of a ZEO client that names none.
const DEFAULT_NAME: &str = "1";

/// Prints addresses, storages, and how to connect.
pub(crate) fn announce(format: LogFormat, storages: &Storages, listeners: &[Listener]) {
    for OpenStorage { name, storage, .. } in storages.iter() {
        let kept = storage.reader();
        info!(
            storage = name,
            file = %kept.name(),
            bytes = kept.size(),
            objects = kept.object_count(),
            last_transaction = %storage.last_tid(),
            read_only = kept.is_read_only(),
            "serving"
        );
    }
    for listener in listeners {
        info!(address = %listener.address(), tls = listener.has_tls(), "listening");
    }
    warn_of_exposure(listeners);
    if format == LogFormat::Human {
        greet(&greeting(storages, listeners));
    }
}

/// ZEO has no passwords: each client that can connect can read and change everything.
fn warn_of_exposure(listeners: &[Listener]) {
    let exposed = listeners.iter().filter(|listener| !listener.has_tls());
    let exposed = exposed.map(Listener::address).filter(|address| is_reachable(address));
    let addresses: Vec<_> = exposed.map(Address::to_string).collect();
    if !addresses.is_empty() {
        let addresses = addresses.join(", ");
        warn!(
            addresses,
            "listening without TLS beyond this machine: every host that can connect \
            can read and change all objects. Set up TLS (--ssl-certificate, --ssl-key, \
            --ssl-authenticate), or listen on a loopback address (-a 127.0.0.1:PORT) or a Unix \
            socket; on a trusted network, a firewall should let in only the clients"
        );
    }
}

/// Whether other machines may be able to connect; always true for a host name.
pub(super) fn is_reachable(address: &Address) -> bool {
    match address {
        Address::Tcp { host, .. } => {
            let ip = host.parse::<IpAddr>().map(|ip| ip.to_canonical());
            !ip.is_ok_and(|ip| ip.is_loopback())
        }
        Address::Unix(_) => false,
    }
}

/// What a server prints at its start, for people.
fn greeting(storages: &Storages, listeners: &[Listener]) -> String {
    let mut text = format!("Zodium {} serves\n", crate::VERSION);
    for OpenStorage { name, storage, file, .. } in storages.iter() {
        let kept = storage.reader();
        let is_of_python_2 = file.as_ref().is_some_and(|file| file.magic() == Magic::Fs21);
        text += &format!("  storage {name}: {}\n", kept.name());
        text += &format!(
            "    size {}, {} objects, last transaction {}{}{}\n",
            ByteSize(kept.size()),
            kept.object_count(),
            moment(storage.last_tid()),
            if is_of_python_2 { ", pickles of Python 2" } else { "" },
            if kept.is_read_only() { ", read-only" } else { "" },
        );
    }
    for listener in listeners {
        let tls = if listener.has_tls() { ", with TLS" } else { "" };
        text += &format!("  listening on {}{tls}\n", listener.address());
    }
    let names: Vec<_> = storages.iter().map(|storage| &*storage.name).collect();
    if let (Some(listener), Some(name)) = (listeners.first(), storage_to_connect_to(&names)) {
        let (address, has_tls) = (listener.address(), listener.has_tls());
        let client = python_client(address, has_tls);
        text += &format!("Connect from Python (pip install {client}):\n  import {client}\n");
        text += &format!("  {}\n", python_line(address, name, has_tls));
    }
    text
}

fn moment(tid: Tid) -> String {
    if tid == Tid::ZERO {
        return "none yet".to_owned();
    }
    let seconds = i64::try_from(tid.to_unix_nanos() / 1_000_000_000).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_second(seconds) {
        Ok(time) => format!("{tid} ({})", time.strftime("%Y-%m-%d %H:%M:%S UTC")),
        Err(_) => tid.to_string(),
    }
}

/// The storage of ZEO's default name if there is one, else the first.
fn storage_to_connect_to<'a>(names: &[&'a str]) -> Option<&'a str> {
    names.iter().find(|name| **name == DEFAULT_NAME).or(names.first()).copied()
}

/// The client that can connect: ZEO's own has no TLS on Unix sockets.
fn python_client(address: &Address, has_tls: bool) -> &'static str {
    match address {
        Address::Unix(_) if has_tls => "zodium",
        _ => "ZEO",
    }
}

/// The line of Python that connects.
fn python_line(address: &Address, storage: &str, has_tls: bool) -> String {
    let mut arguments = python_address(address);
    if storage != DEFAULT_NAME {
        let escaped = storage.replace('\\', "\\\\").replace('\'', "\\'");
        arguments += &format!(", storage='{escaped}'");
    }
    if has_tls {
        arguments += ", ssl=context)  # an ssl.SSLContext with a certificate";
    } else {
        arguments += ")";
    }
    format!("db = {}.DB({arguments}", python_client(address, has_tls))
}

fn python_address(address: &Address) -> String {
    match address {
        Address::Tcp { host, port } if host == "0.0.0.0" => format!("('127.0.0.1', {port})"),
        Address::Tcp { host, port } => format!("('{host}', {port})"),
        Address::Unix(path) => format!("'{}'", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_python_names_a_storage_that_is_not_the_usual_one() {
        let address: Address = "127.0.0.1:8100".parse().unwrap();
        let line = |names: &[&str], has_tls| {
            python_line(&address, storage_to_connect_to(names).unwrap(), has_tls)
        };
        assert_eq!(line(&["a", "1"], false), "db = ZEO.DB(('127.0.0.1', 8100))");
        let named = "db = ZEO.DB(('127.0.0.1', 8100), storage='main'";
        assert_eq!(line(&["main", "b"], false), format!("{named})"));
        assert!(line(&["main"], true).starts_with(&format!("{named}, ssl=context)")));
        assert!(line(&["it's"], false).ends_with("storage='it\\'s')"));
        let socket: Address = "/run/zeo.sock".parse().unwrap();
        assert!(
            python_line(&socket, "1", true).starts_with("db = zodium.DB('/run/zeo.sock', ssl=")
        );
        assert_eq!(python_line(&socket, "1", false), "db = ZEO.DB('/run/zeo.sock')");
    }
}
