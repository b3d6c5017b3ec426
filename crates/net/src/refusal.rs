//! Why the peer of a connection is refused, for metrics.

/// Why a connection is ended because of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The peer broke the protocol, or speaks another one.
    Protocol,
    /// The TLS handshake failed.
    Tls,
    /// The peer asked for a storage that is unknown, or that it may not use. The peer is told, and
    /// ends the connection.
    Storage,
    /// The peer did not complete the handshake of the protocol in time.
    Silent,
    /// The peer does not read its messages.
    Unread,
    /// The peer kept locks that others wait for.
    Locks,
    /// Memory was short, and a large message did not arrive in time.
    Memory,
}

impl Refusal {
    /// All of them, in the order of their declaration.
    pub const ALL: [Refusal; 7] = [
        Refusal::Protocol,
        Refusal::Tls,
        Refusal::Storage,
        Refusal::Silent,
        Refusal::Unread,
        Refusal::Locks,
        Refusal::Memory,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Protocol => "protocol",
            Refusal::Tls => "tls",
            Refusal::Storage => "storage",
            Refusal::Silent => "silent",
            Refusal::Unread => "unread",
            Refusal::Locks => "locks",
            Refusal::Memory => "memory",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_place_in_an_array() {
        for (place, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, place);
        }
    }
}
