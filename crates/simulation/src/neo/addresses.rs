//! Where the processes of a cluster listen.

use zodium_neo::Address;

use super::net::End;

/// The ports of the masters begin with this one.
const MASTER_PORT: u16 = 900;
/// The ports of the storages begin with this one.
const STORAGE_PORT: u16 = 1000;

/// Where a process listens. Clients do not.
pub(super) fn address_of(end: End) -> Address {
    let port = match end {
        End::Master(place) => MASTER_PORT + place as u16,
        End::Storage(place) => STORAGE_PORT + place as u16,
        End::Client(_) | End::Operator => 0,
    };
    Address { host: "127.0.0.1".to_owned(), port }
}

/// The process that listens at an address.
pub(super) fn end_of(address: &Address) -> End {
    match address.port.checked_sub(STORAGE_PORT) {
        Some(place) => End::Storage(place.into()),
        None => End::Master(address.port.saturating_sub(MASTER_PORT).into()),
    }
}
