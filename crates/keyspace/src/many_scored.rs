//! Many members with scores: a table by member, and all of them in order.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::ordered::Ordered;
use crate::score::compare;
use crate::value::hash_of;
use crate::{Score, Table};

#[derive(Clone, Debug, Default)]
pub(crate) struct ManyScored {
    scores: Table<Arc<[u8]>, Score>,
    order: Ordered<(Score, Arc<[u8]>)>,
}

impl ManyScored {
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    /// The score of a member.
    pub(crate) fn score(&self, member: &[u8]) -> Option<Score> {
        self.scores.get(hash_of(member), member).copied()
    }

    /// Sets the score of a member, and returns the one that it had.
    pub(crate) fn set(&mut self, member: &[u8], score: Score) -> Option<Score> {
        let hash = hash_of(member);
        let Some((there, old)) = self.scores.entry(hash, member) else {
            let member: Arc<[u8]> = member.into();
            self.scores.insert(hash, Arc::clone(&member), score);
            self.order.insert((score, member), in_order);
            return None;
        };
        let (there, old) = (Arc::clone(there), *old);
        if old != score {
            self.order.remove(self.rank_of(old, member));
            self.order.insert((score, Arc::clone(&there)), in_order);
            self.scores.insert(hash, there, score);
        }
        Some(old)
    }

    /// Removes a member, and returns its score.
    pub(crate) fn remove(&mut self, member: &[u8]) -> Option<Score> {
        let (_, score) = self.scores.remove(hash_of(member), member)?;
        self.order.remove(self.rank_of(score, member));
        Some(score)
    }

    /// Removes the members of these ranks, and returns them in order.
    pub(crate) fn remove_ranks(&mut self, ranks: Range<usize>) -> Vec<(Score, Arc<[u8]>)> {
        let removed = self.order.remove_range(ranks);
        for (_, member) in &removed {
            self.scores.remove(hash_of(member), member);
        }
        removed
    }

    /// The rank of a member, from 0.
    pub(crate) fn rank(&self, member: &[u8]) -> Option<usize> {
        self.score(member).map(|score| self.rank_of(score, member))
    }

    /// Number of members at the front for which `is_before` holds. It must hold for none after the
    /// first for which it does not.
    pub(crate) fn count_before(&self, is_before: impl Fn(Score, &[u8]) -> bool) -> usize {
        self.order.count_before(|(score, member)| is_before(*score, member))
    }

    /// The members from a rank on, upwards.
    pub(crate) fn upwards(&self, rank: usize) -> impl Iterator<Item = (&[u8], Score)> {
        self.order.upwards(rank).map(|(score, member)| (&**member, *score))
    }

    /// The members from a rank on, downwards.
    pub(crate) fn downwards(&self, rank: usize) -> impl Iterator<Item = (&[u8], Score)> {
        self.order.downwards(rank).map(|(score, member)| (&**member, *score))
    }

    /// A member by chance.
    pub(crate) fn random(&self) -> Option<(&[u8], Score)> {
        self.scores.random().map(|(member, score)| (&**member, *score))
    }

    /// Visits some members, as [`Table::scan`] does.
    pub(crate) fn scan<'a>(
        &'a self,
        position: u64,
        visit: &mut dyn FnMut(&'a [u8], Score),
    ) -> Option<u64> {
        self.scores.scan(position, &mut |member, score| visit(member, *score))
    }

    pub(crate) fn own_bytes(&self) -> usize {
        self.scores.own_bytes() + self.order.own_bytes()
    }

    fn rank_of(&self, score: Score, member: &[u8]) -> usize {
        self.order.count_before(|(there, other)| {
            compare((*there, other), (score, member)) == Ordering::Less
        })
    }
}

fn in_order(one: &(Score, Arc<[u8]>), other: &(Score, Arc<[u8]>)) -> Ordering {
    compare((one.0, &one.1), (other.0, &other.1))
}
