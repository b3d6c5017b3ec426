//! Values of options that have a form of their own.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use crate::dataset::{OBJECT_BYTES_MAX, OBJECT_BYTES_MIN};

/// Most requests in flight per client. So many fit into the socket buffers whatever the server
/// does, so a generator that writes before it reads cannot deadlock with the server.
const IN_FLIGHT_MAX: usize = 1024;
const CLIENTS_MAX: usize = 1024;
const OBJECTS_MAX: u64 = 100_000_000;
/// Prefix of a peer that is running already.
const ADDRESS_SCHEME: &str = "zeo://";

/// A number of clients, each with a number of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) clients: usize,
    pub(crate) in_flight: usize,
}

/// Another server: its name, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) source: PeerSource,
}

/// How to reach a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerSource {
    /// The shell command that runs it.
    Command(String),
    /// The address of a running server.
    Running(SocketAddr),
}

/// Encodings by the names that servers announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encodings(pub(crate) Vec<&'static str>);

impl FromStr for Encodings {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Encodings, Self::Err> {
        let parse = |name: &str| match name {
            "M5" => Ok("M5"),
            "Z5" => Ok("Z5"),
            _ => Err("expected M5, Z5 or M5,Z5"),
        };
        let mut encodings: Vec<&str> = Vec::new();
        for name in text.split(',') {
            let name = parse(name)?;
            if !encodings.contains(&name) {
                encodings.push(name);
            }
        }
        Ok(Encodings(encodings))
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Cell, String> {
        let parse =
            |text: &str, limit| text.parse().ok().filter(|number| (1..=limit).contains(number));
        let cell = text.split_once('x').and_then(|(clients, in_flight)| {
            let clients = parse(clients, CLIENTS_MAX)?;
            Some(Cell { clients, in_flight: parse(in_flight, IN_FLIGHT_MAX)? })
        });
        cell.ok_or_else(|| {
            format!("expected CLIENTSxIN_FLIGHT like 16x64, at most {CLIENTS_MAX}x{IN_FLIGHT_MAX}")
        })
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Peer, String> {
        let (name, source) = text.split_once('=').ok_or("expected NAME=COMMAND")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            return Err("a name is letters, digits, dots, dashes and underscores".to_owned());
        }
        let source = match source.strip_prefix(ADDRESS_SCHEME) {
            Some(address) => {
                let found = address.to_socket_addrs().map_err(|error| error.to_string())?.next();
                PeerSource::Running(found.ok_or_else(|| format!("{address} has no address"))?)
            }
            None if !source.contains("{port}") => {
                return Err("the command does not say where {port} goes".to_owned());
            }
            None => PeerSource::Command(source.to_owned()),
        };
        Ok(Peer { name: name.to_owned(), source })
    }
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| *duration >= Duration::from_millis(1))
        .ok_or_else(|| "expected at least 0.001 seconds".to_owned())
}

/// A number of milliseconds, fractions included; zero is allowed.
pub(super) fn milliseconds(text: &str) -> Result<Duration, String> {
    let milliseconds: f64 = text.parse().map_err(|_| "expected milliseconds".to_owned())?;
    let duration = Duration::try_from_secs_f64(milliseconds / 1e3).ok();
    let duration = duration.filter(|duration| *duration <= Duration::from_secs(10));
    duration.ok_or_else(|| "expected 0 to 10000 milliseconds".to_owned())
}

/// A number of objects: `5000`, `500k`, `10M`.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    let number = number.filter(|number| (1..=OBJECTS_MAX).contains(number));
    number.ok_or_else(|| "expected 1 to 100M, like 5000, 500k or 10M".to_owned())
}

pub(super) fn object_bytes(text: &str) -> Result<u32, String> {
    let bytes = text.parse().ok();
    bytes
        .filter(|bytes| (OBJECT_BYTES_MIN..=OBJECT_BYTES_MAX).contains(bytes))
        .ok_or_else(|| format!("expected {OBJECT_BYTES_MIN} to {OBJECT_BYTES_MAX} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_clients_times_requests_in_flight() {
        assert_eq!("16x64".parse(), Ok(Cell { clients: 16, in_flight: 64 }));
        for wrong in ["", "x", "16", "0x1", "1x0", "1x1025", "axb", "1x-1"] {
            assert!(wrong.parse::<Cell>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_peer_has_a_plain_name_and_a_port_or_runs_already() {
        let peer = "zeo-5=runzeo -a :{port} -f {path} --x=y".parse::<Peer>();
        let source = PeerSource::Command("runzeo -a :{port} -f {path} --x=y".to_owned());
        assert_eq!(peer, Ok(Peer { name: "zeo-5".to_owned(), source }));
        let peer = "far=zeo://127.0.0.1:8100".parse::<Peer>();
        let source = PeerSource::Running(SocketAddr::from(([127, 0, 0, 1], 8100)));
        assert_eq!(peer, Ok(Peer { name: "far".to_owned(), source }));
        for wrong in ["runzeo", "=run {port}", "a/b=run {port}", "zeo=runzeo", "x=zeo://"] {
            assert!(wrong.parse::<Peer>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_have_units() {
        assert_eq!(count("10M"), Ok(10_000_000));
        assert_eq!(count("500k"), Ok(500_000));
        assert_eq!(count("7"), Ok(7));
        for wrong in ["", "0", "M", "-1", "1.5k", "101M", "99999999999999999999k"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
        assert_eq!(milliseconds("0.4"), Ok(Duration::from_micros(400)));
        assert_eq!("Z5,M5,Z5".parse(), Ok(Encodings(vec!["Z5", "M5"])));
        assert!("Z4".parse::<Encodings>().is_err());
    }
}
