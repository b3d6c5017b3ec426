//! Numbers by chance, for commands that choose an element. They keep no secrets.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(1) | 1);
}

/// Begins this thread's numbers again.
pub(crate) fn begin_random(seed: u64) {
    STATE.set(seed | 1);
}

/// A number below `end`, each as likely as any other; 0 if `end` is 0.
#[must_use]
pub fn random_below(end: usize) -> usize {
    // Wyrand's step: an addition, and the two halves of a product.
    let state = STATE.get().wrapping_add(0xa076_1d64_78bd_642f);
    STATE.set(state);
    let product = u128::from(state) * u128::from(state ^ 0xe703_7ed1_a0b4_28db);
    let number = ((product >> 64) ^ product) as u64;
    // The error by the range's not dividing 2^64 is below anything that can be measured.
    ((u128::from(number) * end as u128) >> 64) as usize
}
