//! The random generator of a run, made from its seed.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Random numbers, decided by the seed.
pub(crate) struct Chance {
    generator: RefCell<SmallRng>,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance { generator: RefCell::new(SmallRng::seed_from_u64(seed)) }
    }

    /// A uniformly distributed number of a range.
    pub(crate) fn number(&self, range: RangeInclusive<u64>) -> u64 {
        self.generator.borrow_mut().random_range(range)
    }

    /// A random index into a non-empty list of `length` items.
    pub(crate) fn place(&self, length: usize) -> usize {
        self.generator.borrow_mut().random_range(0..length.max(1))
    }

    /// True in so many of a thousand cases.
    pub(crate) fn permille(&self, cases: u64) -> bool {
        self.generator.borrow_mut().random_range(0..1000) < cases
    }

    /// A number from 1 up to `largest`, small ones more often: each size in bits is equally likely.
    pub(crate) fn size(&self, largest: u64) -> u64 {
        let bits = self.number(0..=u64::from(largest.max(1).ilog2()));
        self.number(1..=(2 << bits) - 1).min(largest.max(1))
    }
}
