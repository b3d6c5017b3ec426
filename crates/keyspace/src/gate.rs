//! The gate in front of the stripes: no holds wait for each other in a circle.
//!
//! Key decision: a hold that knows all of its stripes locks them in ascending order, and shares the
//! gate with others of its kind. One that locks further stripes as it goes, in whatever order, has
//! the gate alone. While it waits for a stripe, the thread that has it holds no other one and waits
//! for none. So a hold of one stripe passes no gate, and neither do readers, which do not wait.

use std::time::Instant;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The gate of a keyspace.
#[derive(Default)]
pub(crate) struct Gate(RwLock<()>);

/// How a hold has passed the gate. Its stripes are unlocked first.
pub(crate) enum Passage<'a> {
    /// It has one stripe or none, or reads only.
    Unneeded,
    Shared {
        _guard: RwLockReadGuard<'a, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'a, ()>,
    },
}

impl Gate {
    /// For a hold of several stripes.
    pub(crate) fn share(&self) -> Passage<'_> {
        Passage::Shared { _guard: self.0.read() }
    }

    /// As [`Gate::share`], but waits until a time at most, or not at all.
    pub(crate) fn try_share(&self, until: Option<Instant>) -> Option<Passage<'_>> {
        let guard = match until {
            Some(until) => self.0.try_read_until(until),
            None => self.0.try_read(),
        };
        Some(Passage::Shared { _guard: guard? })
    }

    /// For a hold that locks further stripes later. Waits until a time at most, or not at all.
    pub(crate) fn try_alone(&self, until: Option<Instant>) -> Option<Passage<'_>> {
        let guard = match until {
            Some(until) => self.0.try_write_until(until),
            None => self.0.try_write(),
        };
        Some(Passage::Alone { _guard: guard? })
    }
}
