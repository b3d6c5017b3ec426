//! A client's connection, as the client knows it.

use super::faulty::Faults;
use super::request::Role;
use crate::pipe::Pipe;

/// A client.
pub(super) struct Peer {
    pub(super) pipe: Pipe,
    /// The number of its connection.
    pub(super) connection: usize,
    pub(super) role: Role,
    /// Whether it is within a transaction, once all that it has sent was executed.
    pub(super) is_queueing: bool,
    /// It sends nothing more, and reads what comes still.
    pub(super) has_finished: bool,
    pub(super) faults: Faults,
}

impl Peer {
    pub(super) fn new(pipe: Pipe, connection: usize, role: Role) -> Peer {
        let faults = Faults::default();
        Peer { pipe, connection, role, is_queueing: false, has_finished: false, faults }
    }
}
