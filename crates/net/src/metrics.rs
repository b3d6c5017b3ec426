//! Counters of the links of one worker.

use zodium_types::Counter;

use crate::Refusal;

/// Counters of one worker's links; only that worker writes them, in cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LinkMetrics {
    /// Connections that were accepted.
    pub accepted: Counter,
    /// Connections that have ended.
    pub ended: Counter,
    /// Connections that were handed over to other workers. They have not ended.
    pub moved: Counter,
    /// Connections ended because of the peer, by reason.
    refused: [Counter; Refusal::ALL.len()],
    /// Bytes read from sockets.
    pub bytes_received: Counter,
    /// Bytes written to sockets.
    pub bytes_sent: Counter,
    /// Bytes that sockets have not taken yet.
    pub unsent_bytes: Counter,
}

impl LinkMetrics {
    /// Connections refused for this reason.
    pub fn refused(&self, refusal: Refusal) -> &Counter {
        &self.refused[refusal as usize]
    }
}
