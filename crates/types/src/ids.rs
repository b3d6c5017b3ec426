//! Object and transaction ids: 64-bit numbers of distinct types, so that they cannot be mixed up.
//!
//! Key decision: the hash of an oid depends on a secret of the process. Clients choose oids, and
//! with a known hash they could choose a million that share one place of each map, for all kinds of
//! fast maps. The hash of a tid needs none: the server gives them.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::OnceLock;

/// An object id. 8 bytes big-endian on disk and on the wire; 0 is the root object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Oid(pub u64);

/// What hashes of oids depend on.
#[derive(Clone, Copy)]
struct HashSecret {
    mask: u64,
    factor: u64,
}

static HASH_SECRET: OnceLock<HashSecret> = OnceLock::new();

/// Gives oids the same hashes in all processes, and so maps the same order: for simulations, which
/// a seed replays. Must come before the first hash.
pub fn fix_oid_hashes() {
    HASH_SECRET.get_or_init(|| HashSecret { mask: 0, factor: 0x9e37_79b9_7f4a_7c15 });
}

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

impl Hash for Oid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let secret = HASH_SECRET.get_or_init(|| {
            let random = |number: u64| RandomState::new().hash_one(number);
            HashSecret { mask: random(1), factor: random(2) | 1 }
        });
        // Both halves: each bit of the one or the other depends on all bits of the oid.
        let product = u128::from(self.0 ^ secret.mask) * u128::from(secret.factor);
        state.write_u64((product >> 64) as u64 ^ product as u64);
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
