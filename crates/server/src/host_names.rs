//! Looks up the host names of a configuration, as a start would: a server cannot listen on a name
//! that has no address, and reaches no cluster by it.

use std::env;
use std::net::ToSocketAddrs;
use std::thread;

use zodium_configuration::{Configuration, Problem, StorageKind};
use zodium_neo_client::Options;
use zodium_sql::MariaAddress;
use zodium_types::Address;

/// The setting that sockets of a service manager replace.
const ADDRESS: &str = "`address`";
/// Most names that are looked up at a time.
const LOOKUPS_MAX: usize = 16;

/// Whether a service manager has sockets for this process, or for the one that its script becomes.
pub(crate) fn are_sockets_given() -> bool {
    env::var_os("LISTEN_FDS").is_some()
}

/// The names that have no address, each with its setting. With sockets of a service manager the
/// server does not look at `address`.
pub(crate) fn problems(configuration: &Configuration, has_sockets: bool) -> Vec<Problem> {
    let named = named_hosts(configuration, has_sockets);
    let each = named.len().div_ceil(LOOKUPS_MAX).max(1);
    // Each may take as long as the resolver waits for its servers.
    thread::scope(|scope| {
        let look_up = |named: &[(String, String)]| -> Vec<Problem> {
            named.iter().filter_map(|(setting, host)| problem(setting, host)).collect()
        };
        let lookups: Vec<_> =
            named.chunks(each).map(|some| scope.spawn(move || look_up(some))).collect();
        lookups.into_iter().flat_map(|lookup| lookup.join().unwrap_or_default()).collect()
    })
}

fn problem(setting: &str, host: &str) -> Option<Problem> {
    // Any port will do.
    let error = (host, 0).to_socket_addrs().err()?;
    let unused = match setting {
        ADDRESS => ", or one whose `address` is not used, as a systemd socket unit listens",
        _ => "",
    };
    Some(Problem {
        message: format!("{setting}: the host {host} is not found ({error})"),
        advice: format!(
            "correct the name, or let this machine know it; --no-lookup checks a configuration \
             for another machine{unused}"
        ),
    })
}

/// The hosts of all settings that have any, each with its setting. URLs have been checked.
fn named_hosts(configuration: &Configuration, has_sockets: bool) -> Vec<(String, String)> {
    let server = &configuration.server;
    let of = |setting: &str, addresses: &[Address]| {
        let hosts = addresses.iter().filter_map(|address| match address {
            // All interfaces.
            Address::Tcp { host, .. } if host.is_empty() => None,
            Address::Tcp { host, .. } => Some((setting.to_owned(), host.clone())),
            Address::Unix(_) => None,
        });
        hosts.collect::<Vec<_>>()
    };
    let mut named = Vec::new();
    if !has_sockets {
        named.extend(of(ADDRESS, &server.addresses));
    }
    named.extend(of("`resp-address`", &server.resp_addresses));
    if let Some(monitor) = &configuration.monitor {
        named.extend(of("`address` of [monitor]", std::slice::from_ref(&monitor.address)));
    }
    for storage in &configuration.storages {
        let addresses = match &storage.kind {
            StorageKind::Neo { url } => Options::from_url(url).map(|options| options.masters).ok(),
            StorageKind::Maria { url } => MariaAddress::of_url(url).map(|at| at.tcp_hosts()).ok(),
            _ => None,
        };
        let setting = format!("the URL of storage {}", storage.name);
        named.extend(of(&setting, &addresses.unwrap_or_default()));
    }
    named
}

#[cfg(test)]
mod tests {
    use zodium_configuration::{MonitorOptions, ServerOptions, StorageOptions};

    use super::*;

    #[test]
    fn names_without_an_address_are_told_with_their_settings() {
        let address = |text: &str| text.parse::<Address>().unwrap();
        let url = "neo://c@127.0.0.1:1,masters.invalid:9500".to_owned();
        let maria = "mysql://u@sql.invalid/neo".to_owned();
        let configuration = Configuration {
            server: ServerOptions {
                addresses: ["8100", "[::1]:8100", "/run/a", "zeo.invalid:8100"].map(address).into(),
                resp_addresses: vec![address("resp.invalid:6379")],
                ..ServerOptions::default()
            },
            monitor: Some(MonitorOptions { address: address("monitor.invalid:9100") }),
            storages: vec![
                StorageOptions::new("one", StorageKind::Neo { url }),
                StorageOptions::new("two", StorageKind::Maria { url: maria }),
            ],
            ..Configuration::default()
        };
        let named = |message: &str| message.split(" is not").next().unwrap().to_owned();
        let told = |has_sockets| -> Vec<String> {
            let problems = problems(&configuration, has_sockets);
            problems.iter().map(|problem| named(&problem.message)).collect()
        };
        let expected = [
            "`address`: the host zeo.invalid",
            "`resp-address`: the host resp.invalid",
            "`address` of [monitor]: the host monitor.invalid",
            "the URL of storage one: the host masters.invalid",
            "the URL of storage two: the host sql.invalid",
        ];
        assert_eq!(told(false), expected);
        assert_eq!(told(true), expected[1..]);
    }
}
