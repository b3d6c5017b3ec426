//! Object and transaction ids: 64-bit numbers of distinct types, so that they cannot be mixed up.

use std::fmt;

/// An object id. 8 bytes big-endian on disk and on the wire; 0 is the root object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Oid(pub u64);

/// A transaction id, also called *serial* when it names the revision of an object.
///
/// 8 bytes big-endian: a ZODB time stamp, see [`crate::CalendarTime`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tid(pub u64);

impl Oid {
    /// The root object.
    pub const ROOT: Oid = Oid(0);

    /// Reads the 8 big-endian bytes; `None` when there are not exactly eight.
    pub fn from_slice(bytes: &[u8]) -> Option<Oid> {
        bytes.try_into().ok().map(|b| Oid(u64::from_be_bytes(b)))
    }

    /// The 8 big-endian bytes.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl Tid {
    /// No transaction: the last tid of an empty database, and the serial of a new object.
    pub const ZERO: Tid = Tid(0);

    /// Later than every transaction; `loadBefore(oid, MAX)` asks for the current revision.
    pub const MAX: Tid = Tid(0x7fff_ffff_ffff_ffff);

    /// Reads the 8 big-endian bytes; `None` when there are not exactly eight.
    pub fn from_slice(bytes: &[u8]) -> Option<Tid> {
        bytes.try_into().ok().map(|b| Tid(u64::from_be_bytes(b)))
    }

    /// The 8 big-endian bytes.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// The smallest tid after this one.
    pub fn next(self) -> Tid {
        Tid(self.0.saturating_add(1))
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Oid({:x})", self.0)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tid({:x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_big_endian_and_exactly_eight_bytes() {
        assert_eq!(Oid(1).to_bytes(), [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(Oid::from_slice(&[0, 0, 0, 0, 0, 0, 1, 2]), Some(Oid(258)));
        assert_eq!(Tid::from_slice(&[0; 7]), None);
        assert_eq!(Tid::from_slice(&[0; 9]), None);
    }
}
