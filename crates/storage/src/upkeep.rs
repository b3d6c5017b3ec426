//! Background work of a storage.

use std::time::Duration;

/// Work that a storage does in the background, in slices: checksums, scrubbing, pruning. The
/// thread is the engine's.
pub trait Upkeep: Send {
    /// Does a little, and tells how long to wait before the next step. Blocking.
    fn step(&mut self) -> Duration;
}
