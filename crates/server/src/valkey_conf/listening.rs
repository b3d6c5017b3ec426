//! Where clients connect, and how: addresses, protection and certificates.

use std::net::{TcpListener, ToSocketAddrs};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use zodium_configuration::TlsOptions;
use zodium_types::Address;

use super::syntax::Directive;

/// What a server without `bind` listens on. A `-` marks addresses that need not be there.
const EVERYWHERE: [&str; 2] = ["*", "-::*"];
const LOOPBACK: [&str; 2] = ["127.0.0.1", "-::1"];

/// The directives of that kind, with the values that they have in an empty file.
#[derive(Debug)]
pub(super) struct Listening {
    port: u16,
    tls_port: u16,
    hosts: Option<Vec<String>>,
    socket: Option<PathBuf>,
    is_protected: bool,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    authorities: Option<PathBuf>,
}

impl Default for Listening {
    fn default() -> Listening {
        Listening {
            port: 6379,
            tls_port: 0,
            hosts: None,
            socket: None,
            is_protected: true,
            certificate: None,
            key: None,
            authorities: None,
        }
    }
}

impl Listening {
    /// Takes a directive if it is one of these.
    pub(super) fn take(&mut self, directive: &Directive) -> Result<bool> {
        let Directive { name, words, place } = directive;
        let word = || directive.word();
        let path = || word().map(|word| Some(PathBuf::from(word)).filter(|_| !word.is_empty()));
        match name.as_str() {
            "port" => self.port = directive.number()?,
            "tls-port" => self.tls_port = directive.number()?,
            "bind" => self.hosts = Some(words.clone()),
            "unixsocket" => self.socket = path()?,
            "protected-mode" => self.is_protected = word()? != "no",
            "tls-cert-file" => self.certificate = path()?,
            "tls-key-file" => self.key = path()?,
            "tls-ca-cert-file" | "tls-ca-cert-dir" => self.authorities = path()?,
            "tls-auth-clients" if word()? == "yes" => {}
            "tls-auth-clients" => bail!(
                "{place}: clients need certificates here, if connections are encrypted: remove it"
            ),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The addresses to listen on. `is_guarded`: clients need a password or a certificate.
    pub(super) fn addresses(&self, is_guarded: bool) -> Result<Vec<Address>> {
        if self.port != 0 && self.tls_port != 0 {
            bail!("connections are encrypted on all addresses here, or on none: write port 0");
        }
        let mut addresses: Vec<Address> = self.socket.iter().cloned().map(Address::Unix).collect();
        let port = self.port.max(self.tls_port);
        if port == 0 {
            return Ok(addresses);
        }
        // A protected server answers its own machine only, if others need no password. With TLS
        // they need a certificate.
        let is_protected = self.is_protected && !is_guarded && self.tls_port == 0;
        let hosts = match &self.hosts {
            Some(hosts) => hosts.clone(),
            None if is_protected => LOOPBACK.map(str::to_owned).to_vec(),
            None => EVERYWHERE.map(str::to_owned).to_vec(),
        };
        for host in hosts.iter().filter(|host| !host.is_empty()) {
            let (host, is_needed) = match host.strip_prefix('-') {
                Some(host) => (host, false),
                None => (host.as_str(), true),
            };
            let host = match host {
                "*" => "0.0.0.0",
                "::*" => "::",
                host => host,
            };
            if is_protected && is_reachable(host) {
                bail!(
                    "bind {host}: without a password this machine alone may connect \
                     (protected-mode). Set requirepass, or bind 127.0.0.1"
                );
            }
            if is_needed || TcpListener::bind((host, 0)).is_ok() {
                addresses.push(Address::Tcp { host: host.to_owned(), port });
            }
        }
        let host = |host: &str| Address::Tcp { host: host.to_owned(), port };
        if addresses.contains(&host("::")) && serves_both() {
            addresses.retain(|address| *address != host("0.0.0.0"));
        }
        Ok(addresses)
    }

    /// The certificates, if connections are encrypted.
    pub(super) fn tls(&self) -> Result<Option<TlsOptions>> {
        if self.tls_port == 0 {
            return Ok(None);
        }
        let certificate = self.certificate.clone().context("tls-port needs tls-cert-file")?;
        let authenticate = self.authorities.clone().context("tls-port needs tls-ca-cert-file")?;
        let key = self.key.clone();
        Ok(Some(TlsOptions { certificate, key, key_password: None, authenticate }))
    }
}

/// Whether other machines may reach a host of this one.
fn is_reachable(host: &str) -> bool {
    let found = (host, 0).to_socket_addrs();
    found.is_ok_and(|mut addresses| addresses.any(|address| !address.ip().is_loopback()))
}

/// Whether an IPv6 socket takes IPv4's connections too, and the address with them.
fn serves_both() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
    setting.is_ok_and(|setting| setting.trim() == "0")
}
