//! Which partition an object or a transaction is in, and its number in SQL.

use zodium_types::{Oid, Tid};

/// The number of partitions of a database. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitions(u32);

impl Partitions {
    /// So many; at least one.
    pub fn new(count: u32) -> Partitions {
        Partitions(count.max(1))
    }

    /// How many there are.
    pub fn count(self) -> u32 {
        self.0
    }

    /// All of them.
    pub fn all(self) -> impl DoubleEndedIterator<Item = u32> + Clone {
        0..self.0
    }

    /// The partition of an object.
    pub fn of_oid(self, oid: Oid) -> u32 {
        (oid.0 % u64::from(self.0)) as u32
    }

    /// The partition of a transaction.
    pub fn of_tid(self, tid: Tid) -> u32 {
        (tid.0 % u64::from(self.0)) as u32
    }
}

/// An oid or a tid as SQLite's signed integer. What does not fit is not in any database, so that a
/// search for it ends at the largest number.
pub(crate) fn number(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}

/// The oid or tid of a number that stands in a database. (A negative one is in none that is
/// whole.)
pub(crate) fn id(number: i64) -> u64 {
    number.cast_unsigned()
}

/// 8 bytes for each object, as `trans.oids` has them.
pub(crate) fn joined(oids: impl Iterator<Item = Oid>) -> Vec<u8> {
    oids.flat_map(Oid::to_bytes).collect()
}

/// The objects of a column such as `trans.oids`.
pub(crate) fn split(oids: &[u8]) -> Vec<Oid> {
    oids.chunks_exact(8).filter_map(Oid::from_slice).collect()
}
