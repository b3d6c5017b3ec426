//! Interrupts callers that wait, for example by a signal in an interpreter that handles signals.

use std::time::Duration;

use thiserror::Error;

/// Interval between interrupt checks of a waiting thread: long enough to cost nothing, short enough
/// after Ctrl-C.
pub const TICK: Duration = Duration::from_millis(100);

/// Tells waiting threads when to stop waiting. Their calls fail, while the
/// request itself goes on.
///
/// It is not asked if the reply comes within a tick. The asking thread holds no lock, so the
/// implementation may use the same client.
pub trait Interrupt: Send + Sync {
    /// Whether the calling thread can be interrupted. Called often.
    fn may_stop(&self) -> bool;

    /// Whether the calling thread has to stop waiting now.
    fn stops(&self) -> bool;
}

/// A thread stopped waiting because its [`Interrupt`] said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("interrupted while waiting for an answer")]
pub struct Interrupted;
