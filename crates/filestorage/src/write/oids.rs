//! Hands out oids.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use zodium_types::Oid;

/// Largest oid that the storage hands out: ZODB's tools read oids as signed numbers.
const NEW_OID_MAX: u64 = i64::MAX as u64;

/// The largest oid that was handed out or stored. A counter of its own, so accesses are `Relaxed`.
pub(crate) struct Oids {
    last: AtomicU64,
}

impl Oids {
    /// New oids begin `gap` above the largest oid in use, or right behind it when the oid space
    /// leaves no such gap. Where no oid is in use there is no gap.
    pub(crate) fn new(largest: Option<Oid>, gap: u64) -> Oids {
        let behind_gap =
            |oid: Oid| oid.0.checked_add(gap).filter(|last| *last < NEW_OID_MAX).unwrap_or(oid.0);
        Oids { last: AtomicU64::new(largest.map_or(Oid::ROOT.0, behind_gap)) }
    }

    /// Hands out `count` unused oids in ascending order; `None` when the 63-bit space ends.
    pub(crate) fn hand_out(&self, count: u64) -> Option<RangeInclusive<u64>> {
        let behind = |last: u64| last.checked_add(count).filter(|last| *last <= NEW_OID_MAX);
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, behind).ok()?;
        Some(last + 1..=last + count)
    }

    /// Largest oid that is in use, was handed out, or is in the gap before new oids.
    pub(crate) fn last(&self) -> Oid {
        Oid(self.last.load(Ordering::Relaxed))
    }

    /// Notes that an oid is in use, so that it is not handed out.
    pub(crate) fn note(&self, oid: Oid) {
        self.last.fetch_max(oid.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oids_end_with_the_space_that_tools_can_read() {
        let oids = Oids::new(None, 1000);
        assert_eq!(oids.hand_out(1), Some(1..=1));
        oids.note(Oid(NEW_OID_MAX - 1));
        assert_eq!(oids.hand_out(2), None);
        assert_eq!(oids.hand_out(1), Some(NEW_OID_MAX..=NEW_OID_MAX));
        assert_eq!((oids.hand_out(1), oids.last()), (None, Oid(NEW_OID_MAX)));
    }
}
