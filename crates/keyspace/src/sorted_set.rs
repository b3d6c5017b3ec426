//! Sorted sets: members with scores, in the order of scores, then of members.

use std::ops::Range;
use std::sync::Arc;

use either::Either;

use crate::few_scored::{FewScored, Full};
use crate::many_scored::ManyScored;
use crate::{Score, random_below};

/// Members with scores.
#[derive(Clone, Debug)]
pub struct SortedSet(Form);

#[derive(Clone, Debug)]
enum Form {
    Few(FewScored),
    Many(Box<ManyScored>),
}

impl Default for SortedSet {
    fn default() -> SortedSet {
        SortedSet(Form::Few(FewScored::default()))
    }
}

impl SortedSet {
    /// The number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Few(few) => few.len(),
            Form::Many(many) => many.len(),
        }
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The score of a member.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<Score> {
        match &self.0 {
            Form::Few(few) => few.score(member),
            Form::Many(many) => many.score(member),
        }
    }

    /// Sets the score of a member, and returns the one that it had.
    pub fn set(&mut self, member: &[u8], score: Score) -> Option<Score> {
        match &mut self.0 {
            Form::Few(few) => match few.set(member, score) {
                Ok(old) => old,
                Err(Full) => {
                    let mut many = ManyScored::default();
                    for (member, score) in few.upwards(0) {
                        many.set(member, score);
                    }
                    self.0 = Form::Many(Box::new(many));
                    self.set(member, score)
                }
            },
            Form::Many(many) => many.set(member, score),
        }
    }

    /// Removes a member, and returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<Score> {
        match &mut self.0 {
            Form::Few(few) => few.remove(member),
            Form::Many(many) => many.remove(member),
        }
    }

    /// Removes the members of these ranks, and returns them in order.
    pub fn remove_ranks(&mut self, ranks: Range<usize>) -> Vec<(Score, Arc<[u8]>)> {
        match &mut self.0 {
            Form::Few(few) => few.remove_ranks(ranks),
            Form::Many(many) => many.remove_ranks(ranks),
        }
    }

    /// The rank of a member, from 0.
    #[must_use]
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        match &self.0 {
            Form::Few(few) => few.rank(member),
            Form::Many(many) => many.rank(member),
        }
    }

    /// Number of members at the front for which `is_before` holds. It must hold for none after the
    /// first for which it does not.
    pub fn count_before(&self, is_before: impl Fn(Score, &[u8]) -> bool) -> usize {
        match &self.0 {
            Form::Few(few) => few.count_before(is_before),
            Form::Many(many) => many.count_before(is_before),
        }
    }

    /// The members from a rank on, upwards.
    pub fn upwards(&self, rank: usize) -> impl Iterator<Item = (&[u8], Score)> {
        match &self.0 {
            Form::Few(few) => Either::Left(few.upwards(rank)),
            Form::Many(many) => Either::Right(many.upwards(rank)),
        }
    }

    /// The members from a rank on, downwards.
    pub fn downwards(&self, rank: usize) -> impl Iterator<Item = (&[u8], Score)> {
        match &self.0 {
            Form::Few(few) => Either::Left(few.downwards(rank)),
            Form::Many(many) => Either::Right(many.downwards(rank)),
        }
    }

    /// A member by chance.
    #[must_use]
    pub fn random(&self) -> Option<(&[u8], Score)> {
        match &self.0 {
            Form::Few(few) => few.upwards(random_below(few.len().max(1))).next(),
            Form::Many(many) => many.random(),
        }
    }

    /// Visits some members, and returns where the next ones begin; `None` at the end. Those that
    /// are there from the first visit to the last are met. A small set is visited at once.
    pub fn scan<'a>(
        &'a self,
        position: u64,
        visit: &mut dyn FnMut(&'a [u8], Score),
    ) -> Option<u64> {
        match &self.0 {
            Form::Few(few) => {
                few.upwards(0).for_each(|(member, score)| visit(member, score));
                None
            }
            Form::Many(many) => many.scan(position, visit),
        }
    }

    /// Bytes of its allocation, if its elements have none of their own.
    pub(crate) fn packed_bytes(&self) -> Option<usize> {
        match &self.0 {
            Form::Few(few) => Some(few.own_bytes()),
            Form::Many(_) => None,
        }
    }

    /// Bytes of its allocations but for those of elements.
    pub(crate) fn own_bytes(&self) -> usize {
        match &self.0 {
            Form::Few(few) => few.own_bytes(),
            Form::Many(many) => size_of::<ManyScored>() + many.own_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::score::compare;

    fn in_order(model: &BTreeMap<Vec<u8>, Score>) -> Vec<(&[u8], Score)> {
        let mut all: Vec<_> = model.iter().map(|(name, score)| (&**name, *score)).collect();
        all.sort_by(|one, other| compare((one.1, one.0), (other.1, other.0)));
        all
    }

    /// Sizes around that from which members are no longer packed.
    #[test]
    fn few_and_many_members_are_in_the_same_order() {
        for most in [3, 126, 140, 500] {
            let (mut set, mut model) = (SortedSet::default(), BTreeMap::new());
            for round in 0..4000 {
                let name = random_below(most).to_string().repeat(1 + round % 3).into_bytes();
                let score = [0.0, -0.0, 1.5, -7.0, f64::INFINITY, 3e300][random_below(6)];
                match random_below(5) {
                    0 => assert_eq!(set.remove(&name), model.remove(&name)),
                    1 if round % 8 == 0 => {
                        let start = random_below(model.len() + 1);
                        let end = (start + random_below(4)).min(model.len());
                        let removed = set.remove_ranks(start..end);
                        let expected: Vec<_> = in_order(&model)[start..end]
                            .iter()
                            .map(|(name, score)| (*score, Arc::from(*name)))
                            .collect();
                        assert_eq!(removed, expected);
                        for (_, name) in expected {
                            model.remove(&*name);
                        }
                    }
                    _ => {
                        assert_eq!(set.set(&name, score), model.get(&name).copied());
                        let there = model.entry(name).or_insert(score);
                        // Minus zero does not replace zero.
                        if *there != score {
                            *there = score;
                        }
                    }
                }
                let all = in_order(&model);
                assert_eq!((set.len(), set.is_empty()), (all.len(), all.is_empty()));
                assert!(set.upwards(0).eq(all.iter().copied()));
                let rank = random_below(all.len() + 1);
                assert!(set.upwards(rank).eq(all[rank..].iter().copied()));
                let Some((name, score)) = all.get(rank).copied() else {
                    assert_eq!(set.downwards(rank).next(), None);
                    continue;
                };
                assert!(set.downwards(rank).eq(all[..=rank].iter().rev().copied()));
                assert_eq!((set.rank(name), set.score(name)), (Some(rank), Some(score)));
                let is_before = |its, other: &[u8]| compare((its, other), (score, name)).is_lt();
                assert_eq!(set.count_before(is_before), rank);
                assert!(set.random().is_some_and(|member| all.contains(&member)));
            }
        }
    }
}
