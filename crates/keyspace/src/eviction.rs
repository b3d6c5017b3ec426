//! Which key goes when memory is full: the first of a few that are chosen by chance.
//!
//! Key decision: each sample is a key of the whole keyspace, each as likely as any other, so few
//! keys are chosen from as fairly as many. The best of earlier samples are kept in a pool, so the
//! choice comes near to the first of all keys.

/// Which keys go when memory is full, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The key that goes first.
    pub first: First,
    /// Whether only keys that expire go.
    pub only_volatile: bool,
}

/// The key that goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The one that was not used for longest.
    LeastRecent,
    /// The one with the lowest counter of uses.
    LeastFrequent,
    /// The one that expires first.
    Shortest,
    /// Any.
    Random,
}

/// Why no key was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotEvicted {
    /// No key may go.
    Nothing,
    /// No key may go but those of locked stripes.
    Locked,
}

/// Most candidates that are kept.
const CANDIDATES_MAX: usize = 16;

/// The best candidates of all samples so far.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// What the ranks are of.
    eviction: Option<Eviction>,
    /// By rank, ascending. A key is there once.
    candidates: Vec<Candidate>,
}

/// A key that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its rank when it was sampled; the lowest goes first.
    pub(crate) rank: u64,
    pub(crate) stripe: usize,
    pub(crate) database: usize,
    pub(crate) hash: u64,
}

impl Pool {
    /// Drops candidates that were ranked for another order.
    pub(crate) fn begin(&mut self, eviction: Eviction) {
        if self.eviction != Some(eviction) {
            self.eviction = Some(eviction);
            self.candidates.clear();
        }
    }

    /// Whether a sample with a rank is among the best.
    pub(crate) fn wants(&self, rank: u64) -> bool {
        let is_full = self.candidates.len() == CANDIDATES_MAX;
        !is_full || self.candidates.last().is_some_and(|worst| rank < worst.rank)
    }

    /// Adds a sample, if it is among the best. A key that was sampled before may keep its better
    /// rank otherwise: its rank is looked at again when it is to go.
    pub(crate) fn offer(&mut self, candidate: Candidate) {
        if !self.wants(candidate.rank) {
            return;
        }
        let place = |one: &Candidate| (one.stripe, one.database, one.hash);
        self.candidates.retain(|other| place(other) != place(&candidate));
        let place = self.candidates.partition_point(|other| other.rank <= candidate.rank);
        self.candidates.insert(place, candidate);
        self.candidates.truncate(CANDIDATES_MAX);
    }

    /// Takes the best candidate out.
    pub(crate) fn take(&mut self) -> Option<Candidate> {
        (!self.candidates.is_empty()).then(|| self.candidates.remove(0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const EVICTION: Eviction = Eviction { first: First::Shortest, only_volatile: true };

    proptest! {
        /// The model: the last rank of each key that was offered, wanted and not dropped, sorted.
        #[test]
        fn the_pool_keeps_the_best_of_what_it_was_offered(
            steps in prop::collection::vec(
                prop::option::weighted(0.9, (0..40_u8, 0..50_u64)),
                0..200,
            )
        ) {
            let (mut pool, mut model) = (Pool::default(), HashMap::<u8, u64>::new());
            pool.begin(EVICTION);
            for step in steps {
                if let Some((key, rank)) = step {
                    pool.offer(Candidate { rank, stripe: 0, database: 0, hash: key.into() });
                    let worst = model.values().copied().max().unwrap_or(0);
                    if model.len() < CANDIDATES_MAX || rank < worst {
                        model.insert(key, rank);
                    }
                    if model.len() > CANDIDATES_MAX {
                        let worst = model.values().copied().max().unwrap_or(0);
                        // Of equal ranks that which came last goes; the model asks the pool.
                        let kept = pool.candidates.iter().map(|one| one.hash as u8);
                        let kept: Vec<u8> = kept.collect();
                        let gone: Vec<u8> =
                            model.keys().copied().filter(|key| !kept.contains(key)).collect();
                        prop_assert_eq!(gone.len(), 1);
                        prop_assert_eq!(model.remove(&gone[0]), Some(worst));
                    }
                } else {
                    let best = model.values().copied().min();
                    let taken = pool.take();
                    prop_assert_eq!(taken.as_ref().map(|taken| taken.rank), best);
                    if let Some(taken) = taken {
                        prop_assert_eq!(model.remove(&(taken.hash as u8)), best);
                    }
                }
                let mut ranks: Vec<u64> = model.values().copied().collect();
                ranks.sort_unstable();
                let kept: Vec<u64> = pool.candidates.iter().map(|one| one.rank).collect();
                prop_assert_eq!(kept, ranks);
            }
        }
    }

    #[test]
    fn another_order_begins_anew() {
        let mut pool = Pool::default();
        pool.begin(EVICTION);
        pool.offer(Candidate { rank: 1, stripe: 0, database: 0, hash: 1 });
        pool.begin(EVICTION);
        assert_eq!(pool.candidates.len(), 1);
        pool.begin(Eviction { first: First::LeastRecent, ..EVICTION });
        assert_eq!(pool.take(), None);
    }
}
