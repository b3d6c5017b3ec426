//! Callers that are told to stop waiting: by a signal, in an interpreter that handles signals.

use std::time::Duration;

/// How often who waits looks whether it is to stop. Long enough to cost nothing, and short for
/// whoever has pressed Ctrl-C.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Tells threads that wait for a server when not to wait any longer: they come back with
/// [`ClientError::Interrupted`](crate::ClientError::Interrupted), and what was asked goes on.
///
/// Nobody is asked while an answer comes within a tick, and the thread that is asked holds nothing
/// that others wait for: it may use the same client.
pub trait Interrupt: Send + Sync {
    /// Whether the calling thread is one that may be told to stop. It is asked often.
    fn may_stop(&self) -> bool;

    /// Whether the calling thread is to stop now.
    fn stops(&self) -> bool;
}
