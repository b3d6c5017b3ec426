//! The checksums that a scan verifies with. The scan does not know where they are kept.

use zodium_types::{Oid, Tid};

/// The part of the log that a checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A transaction without its records: header, metadata, and the copy of its length.
    Frame,
    /// A data record: header, and data or back pointer.
    Record,
}

/// The checksums of the log that is scanned.
pub(crate) trait Sums {
    /// The checksum of the part at a position, if it has one. May wait for the device.
    fn sum(&mut self, position: u64, part: Part) -> Option<u32>;

    /// Notes a mismatch; `false` if the checksums are of another log.
    fn is_damage(&self, position: u64, oid: Option<Oid>, tid: Tid, what: &str) -> bool;
}
