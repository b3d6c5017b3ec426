//! Sorted sets: members with scores, in the order of scores, then of members.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::Table;
use crate::ordered::Ordered;
use crate::value::hash_of;

/// The score of a member. Never a NaN.
pub type Score = f64;

/// Members with scores.
#[derive(Clone, Debug, Default)]
pub struct SortedSet {
    scores: Table<Arc<[u8]>, Score>,
    order: Ordered<(Score, Arc<[u8]>)>,
}

impl SortedSet {
    /// The number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// The score of a member.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<Score> {
        self.scores.get(hash_of(member), member).copied()
    }

    /// Sets the score of a member, and returns the one that it had.
    pub fn set(&mut self, member: &[u8], score: Score) -> Option<Score> {
        let hash = hash_of(member);
        let Some((there, old)) = self.scores.entry(hash, member) else {
            let member: Arc<[u8]> = member.into();
            self.scores.insert(hash, Arc::clone(&member), score);
            self.order.insert((score, member), compare);
            return None;
        };
        let (there, old) = (Arc::clone(there), *old);
        if old != score {
            self.order.remove(self.rank_of(old, member));
            self.order.insert((score, Arc::clone(&there)), compare);
            self.scores.insert(hash, there, score);
        }
        Some(old)
    }

    /// Removes a member, and returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<Score> {
        let (_, score) = self.scores.remove(hash_of(member), member)?;
        self.order.remove(self.rank_of(score, member));
        Some(score)
    }

    /// Removes the members of these ranks, and returns them in order.
    pub fn remove_ranks(&mut self, ranks: Range<usize>) -> Vec<(Score, Arc<[u8]>)> {
        let removed = self.order.remove_range(ranks);
        for (_, member) in &removed {
            self.scores.remove(hash_of(member), member);
        }
        removed
    }

    /// The rank of a member, from 0.
    #[must_use]
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        self.score(member).map(|score| self.rank_of(score, member))
    }

    /// Number of members at the front for which `is_before` holds. It must hold for none after the
    /// first for which it does not.
    pub fn count_before(&self, is_before: impl Fn(Score, &[u8]) -> bool) -> usize {
        self.order.count_before(|(score, member)| is_before(*score, member))
    }

    /// The members from a rank on, upwards.
    pub fn upwards(&self, rank: usize) -> impl Iterator<Item = (&[u8], Score)> {
        self.order.upwards(rank).map(|(score, member)| (&**member, *score))
    }

    /// The members from a rank on, downwards.
    pub fn downwards(&self, rank: usize) -> impl Iterator<Item = (&[u8], Score)> {
        self.order.downwards(rank).map(|(score, member)| (&**member, *score))
    }

    /// A member by chance.
    #[must_use]
    pub fn random(&self) -> Option<(&[u8], Score)> {
        self.scores.random().map(|(member, score)| (&**member, *score))
    }

    /// The table of members.
    #[must_use]
    pub fn table(&self) -> &Table<Arc<[u8]>, Score> {
        &self.scores
    }

    pub(crate) fn own_bytes(&self) -> usize {
        self.scores.own_bytes() + self.order.own_bytes()
    }

    fn rank_of(&self, score: Score, member: &[u8]) -> usize {
        self.order.count_before(|(there, other)| {
            by_score(*there, score).then_with(|| (**other).cmp(member)) == Ordering::Less
        })
    }
}

fn compare(one: &(Score, Arc<[u8]>), other: &(Score, Arc<[u8]>)) -> Ordering {
    by_score(one.0, other.0).then_with(|| one.1.cmp(&other.1))
}

/// Zero equals minus zero, unlike in the total order of doubles.
fn by_score(one: Score, other: Score) -> Ordering {
    one.partial_cmp(&other).unwrap_or(Ordering::Equal)
}
