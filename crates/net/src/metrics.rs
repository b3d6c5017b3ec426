//! What the links of one worker have carried.

use zodium_types::Counter;

/// Written by its worker only, and alone in its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LinkMetrics {
    /// Connections that were taken.
    pub accepted: Counter,
    /// Those that have ended.
    pub ended: Counter,
    /// Those that were ended because the peer broke the protocol, or did not take its messages.
    pub refused: Counter,
    /// Bytes read from sockets.
    pub bytes_received: Counter,
    /// Bytes that sockets have taken.
    pub bytes_sent: Counter,
}
