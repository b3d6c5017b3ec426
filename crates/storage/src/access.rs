//! Whether a call may wait.

/// Whether a read may wait for a device or a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only what is in memory. For anything else the answer is to ask again.
    NonBlocking,
    /// Whatever it takes. Never on a worker thread.
    Blocking,
}
