//! Sets of stripes.

use std::ops::BitOr;

/// Number of stripes: bits of a [`Stripes`].
pub(crate) const STRIPES: usize = 64;
/// Bits of a hash that choose the stripe.
pub(crate) const STRIPE_BITS: u32 = STRIPES.trailing_zeros();

/// A set of stripes, which are locked together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stripes(u64);

impl Stripes {
    /// No stripe.
    pub const NONE: Stripes = Stripes(0);
    /// All stripes: for commands that may touch any key.
    pub const ALL: Stripes = Stripes(u64::MAX);

    /// The stripe with this number.
    pub(crate) fn one(number: usize) -> Stripes {
        Stripes(1 << number)
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that are not among others.
    pub(crate) fn without(self, others: Stripes) -> Stripes {
        Stripes(self.0 & !others.0)
    }

    /// A bit for each.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The only one, if there is one.
    pub(crate) fn only(self) -> Option<usize> {
        self.0.is_power_of_two().then_some(self.0.trailing_zeros() as usize)
    }

    /// Whether there are two or more.
    pub(crate) fn are_several(self) -> bool {
        self.count() > 1
    }

    pub(crate) fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Their numbers, ascending: the order in which all lock them.
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let number = left.trailing_zeros() as usize;
            // Without its lowest bit; of nothing, nothing.
            left &= left.wrapping_sub(1);
            (number < STRIPES).then_some(number)
        })
    }
}

impl BitOr for Stripes {
    type Output = Stripes;

    fn bitor(self, other: Stripes) -> Stripes {
        Stripes(self.0 | other.0)
    }
}
