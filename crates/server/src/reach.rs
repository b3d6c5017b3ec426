//! How commands reach a server: where it is, what it serves, and over TLS or not.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use rustls_pki_types::ServerName;
use zodium_client::direct::{Stream, connect};
use zodium_configuration::{ServerOptions, StorageOptions, TlsOptions};
use zodium_tls::{AllowList, CertificateFiles, ClientFiles, ClientTls, Password, Trust};
use zodium_types::Address;

use crate::own_certificate::own_files;

/// Options of commands that ask a server.
#[derive(Debug, Args)]
pub(crate) struct ReachOptions {
    /// The server's own configuration, which has its address, its storages and its TLS settings
    ///
    /// Its first address counts, unless one is given. With TLS the command shows the server's own
    /// certificate, and trusts only the server with this very certificate. So `authenticate` in the
    /// configuration has to cover that certificate, which has to be valid for clients too.
    /// --ssl-certificate and --ssl-authenticate name others.
    #[arg(short = 'C', long, alias = "configure", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    tls: TlsArguments,
}

/// The heading of each option below. A heading of the struct would go on after it.
const TLS_HEADING: &str = "TLS, for servers that speak it";

/// Encryption, as ZEO has it: both sides show a certificate.
#[derive(Debug, Default, Args)]
pub(crate) struct TlsArguments {
    /// PEM file with the certificate to show and its chain, perhaps also its key
    #[arg(long, help_heading = TLS_HEADING, value_name = "PATH", env = "ZODIUM_SSL_CERTIFICATE")]
    ssl_certificate: Option<PathBuf>,

    /// PEM file with the key, if it is not in the file of the certificate
    #[arg(long, help_heading = TLS_HEADING, value_name = "PATH", env = "ZODIUM_SSL_KEY")]
    ssl_key: Option<PathBuf>,

    /// File whose first line is the password of the key
    #[arg(long, help_heading = TLS_HEADING, value_name = "PATH")]
    #[arg(env = "ZODIUM_SSL_KEY_PASSWORD_FILE")]
    ssl_key_password_file: Option<PathBuf>,

    /// PEM file or directory with the certificate of the server, or of its issuers
    #[arg(long, help_heading = TLS_HEADING, value_name = "PATH", env = "ZODIUM_SSL_AUTHENTICATE")]
    ssl_authenticate: Option<PathBuf>,

    /// The name in the server's certificate, unless that is listed itself [default: the host of
    /// the address]
    #[arg(long, help_heading = TLS_HEADING, value_name = "NAME")]
    ssl_server_hostname: Option<String>,
}

/// A server, and the way to it.
pub(crate) struct Destination {
    pub(crate) address: Address,
    /// What it serves to us, as far as a configuration says.
    pub(crate) storages: Vec<String>,
    tls: Option<(ClientTls, ServerName<'static>)>,
}

impl ReachOptions {
    /// The server at this address, or else where its configuration has it.
    pub(crate) fn destination(&self, address: Option<Address>) -> Result<Destination> {
        let (server, storages) = match &self.config {
            Some(file) => {
                let (configuration, _) = crate::configuration_file::read(file)?;
                (configuration.server, configuration.storages)
            }
            None => (ServerOptions::default(), Vec::new()),
        };
        let address = match (address, address_of_environment()?) {
            (Some(address), _) | (None, Some(address)) => address,
            (None, None) => {
                let first = server.addresses.first().cloned();
                first.context("the configuration names no address")?
            }
        };
        let address = as_reached(address)?;
        let files = self.tls.files(server.tls.as_ref())?;
        let tls = files.map(|files| ClientTls::load(&files).context("cannot set up TLS"));
        let tls = match tls.transpose()? {
            Some(tls) => Some((tls, self.tls.name_of(&address)?)),
            None => None,
        };
        let storages = served_to(tls.as_ref().map(|(tls, _)| tls), &storages);
        Ok(Destination { address, storages, tls })
    }
}

impl Destination {
    /// The error of a server that answers, and has no storage for this command.
    pub(crate) fn serves_nothing(&self) -> anyhow::Error {
        let address = &self.address;
        match self.tls.as_ref().and_then(|(tls, _)| tls.identity()) {
            Some(identity) => anyhow!(
                "{address} serves no storage to {}: name it in `allow`, or show another \
                 certificate (--ssl-certificate)",
                identity.subject
            ),
            None => anyhow!("{address} serves no storage"),
        }
    }

    /// Connects, and shakes hands where there is TLS, each within `limit`.
    pub(crate) fn connect(&self, limit: Duration) -> Result<Stream> {
        let stream = connect(&self.address, limit)?;
        match &self.tls {
            Some((tls, name)) => stream
                .secure(tls.config(), name.clone(), limit)
                .with_context(|| self.address.to_string()),
            None => Ok(stream),
        }
    }
}

impl TlsArguments {
    /// What TLS is made of; `None`: neither options nor configuration ask for it.
    pub(crate) fn files(&self, configured: Option<&TlsOptions>) -> Result<Option<ClientFiles>> {
        let is_more_given = self.ssl_key.is_some() || self.ssl_key_password_file.is_some();
        let own = match (&self.ssl_certificate, configured) {
            (Some(certificate), _) => Some(CertificateFiles {
                certificate: certificate.clone(),
                key: self.ssl_key.clone(),
                key_password: self.ssl_key_password_file.clone().map(Password::File),
            }),
            (None, _) if is_more_given => {
                bail!("a key is of no use without its --ssl-certificate");
            }
            (None, configured) => configured.map(own_files),
        };
        let trust = match (&self.ssl_authenticate, configured) {
            (Some(path), _) => Trust::Listed(path.clone()),
            (None, Some(tls)) => Trust::Only(tls.certificate.clone()),
            (None, None) if own.is_none() && self.ssl_server_hostname.is_none() => return Ok(None),
            (None, None) => {
                bail!("TLS needs --ssl-authenticate, to know the server by");
            }
        };
        Ok(Some(ClientFiles { own, trust }))
    }

    /// The name that the server's certificate has to have, if one is given.
    pub(crate) fn server_name(&self) -> Option<String> {
        self.ssl_server_hostname.clone()
    }

    fn name_of(&self, address: &Address) -> Result<ServerName<'static>> {
        let name = match (&self.ssl_server_hostname, address) {
            (Some(name), _) => name,
            (None, Address::Tcp { host, .. }) if !host.is_empty() => host,
            (None, _) => "localhost",
        };
        let name = ServerName::try_from(name.to_owned());
        name.context("the server's certificate cannot have this name: see --ssl-server-hostname")
    }
}

/// The first address that `zodium serve` listens on in this environment, as in a container.
fn address_of_environment() -> Result<Option<Address>> {
    let Some(list) = std::env::var_os("ZODIUM_ADDRESS").filter(|list| !list.is_empty()) else {
        return Ok(None);
    };
    let list = list.to_string_lossy();
    let first = list.split(',').next().unwrap_or_default();
    let address = first.parse().map_err(|error| anyhow!("ZODIUM_ADDRESS: {error}"))?;
    Ok(Some(address))
}

/// The address at which a client on this machine reaches a server that listens there.
fn as_reached(address: Address) -> Result<Address> {
    let host = |host: &str, port| Ok(Address::Tcp { host: host.to_owned(), port });
    match address {
        Address::Tcp { port: 0, .. } => {
            bail!("port 0 lets the system choose one: say which it has chosen")
        }
        Address::Tcp { host: all, port } if all == "0.0.0.0" => host("127.0.0.1", port),
        Address::Tcp { host: all, port } if all == "::" => host("::1", port),
        address => Ok(address),
    }
}

/// The names of the storages whose `allow` lists admit this client.
fn served_to(tls: Option<&ClientTls>, storages: &[StorageOptions]) -> Vec<String> {
    let identity = tls.and_then(ClientTls::identity);
    let is_ours = |storage: &&StorageOptions| match &storage.allow {
        Some(allowed) => AllowList::new(allowed.iter().map(String::as_str)).admits(identity),
        None => true,
    };
    storages.iter().filter(is_ours).map(|storage| storage.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_everywhere_is_reached_on_this_machine() {
        for (listening, reached) in [
            ("0.0.0.0:8100", "127.0.0.1:8100"),
            ("[::]:8100", "[::1]:8100"),
            ("db:8100", "db:8100"),
            ("/run/zeo.sock", "/run/zeo.sock"),
        ] {
            let found = as_reached(listening.parse().unwrap()).unwrap();
            assert_eq!(found.to_string(), reached);
        }
        assert!(as_reached("0".parse().unwrap()).is_err());
    }
}
