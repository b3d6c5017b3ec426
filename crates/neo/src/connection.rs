//! The name of a connection, between a node and its driver.

use std::fmt;

/// The name of a connection of a node, which gives it; a node uses none twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// The connection with this number among those of its node.
    pub const fn new(number: u64) -> ConnectionId {
        ConnectionId(number)
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.0)
    }
}
