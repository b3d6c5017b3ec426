//! Addresses as NEO's options have them. On the wire addresses are numeric.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail};
use zodium_neo::Address;

/// Reads the addresses of masters.
pub(super) fn masters(given: &[String]) -> Result<Vec<Address>> {
    let given = given.iter().flat_map(|text| text.split_whitespace());
    let addresses = given.map(|one| numeric(one, None));
    let addresses: Vec<Address> =
        addresses.map(|one| one.map(Address::from)).collect::<Result<_>>()?;
    if addresses.is_empty() {
        bail!("--masters names no master; give at least one address");
    }
    Ok(addresses)
}

/// Reads an address, and looks its host up.
pub(super) fn numeric(text: &str, default_port: Option<u16>) -> Result<SocketAddr> {
    let with_port = match (text.rsplit_once(':'), default_port) {
        (Some((host, _)), _) if !host.contains(':') || host.ends_with(']') => text.to_owned(),
        (_, Some(port)) => format!("{text}:{port}"),
        (_, None) => bail!("{text:?} is not an address; write HOST:PORT, or [IPv6]:PORT"),
    };
    let mut found = with_port
        .to_socket_addrs()
        .with_context(|| format!("cannot look up {text:?}; write HOST:PORT, or [IPv6]:PORT"))?;
    found.next().with_context(|| format!("{text:?} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_numeric() {
        let shown = |text, port| numeric(text, port).unwrap().to_string();
        assert_eq!(shown("127.0.0.1:10", None), "127.0.0.1:10");
        assert_eq!(shown("[::1]:10", None), "[::1]:10");
        assert_eq!(shown("127.0.0.1", Some(0)), "127.0.0.1:0");
        assert_eq!(shown("[::1]", Some(0)), "[::1]:0");
        assert!(numeric("127.0.0.1", None).is_err());
        assert_eq!(masters(&["127.0.0.1:1 127.0.0.1:2".to_owned()]).unwrap().len(), 2);
        assert!(masters(&[" ".to_owned()]).is_err());
    }
}
