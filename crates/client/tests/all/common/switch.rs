//! Has the threads that wait in a client stop.

use std::sync::atomic::{AtomicBool, Ordering};

use zodium_client::Interrupt;

/// Tells all waiting threads to stop, while it is set.
#[derive(Default)]
pub(crate) struct Switch(AtomicBool);

impl Switch {
    pub(crate) fn set(&self, stops: bool) {
        self.0.store(stops, Ordering::Relaxed);
    }
}

impl Interrupt for Switch {
    fn may_stop(&self) -> bool {
        true
    }

    fn stops(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
