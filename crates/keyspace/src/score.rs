//! The scores of members of sorted sets, and their order.

use std::cmp::Ordering;

/// The score of a member. Never a NaN.
pub type Score = f64;

/// The order of members: by scores, then by names. Zero equals minus zero, unlike in the total
/// order of doubles.
pub(crate) fn compare(one: (Score, &[u8]), other: (Score, &[u8])) -> Ordering {
    let by_score = one.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal);
    by_score.then_with(|| one.1.cmp(other.1))
}
