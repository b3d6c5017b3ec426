//! Entries of a stream that a group has delivered and not acknowledged.
//!
//! Key decision: beside all of them by their ids, each consumer has a set of its own ids. So
//! questions about one consumer cost as much as it has, and not as much as the group has.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

use crate::{StreamId, Word};

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The name of the consumer that has it.
    pub consumer: Word,
    /// When it was delivered last, in milliseconds since 1970.
    pub delivered_at: u64,
    /// How often it was delivered.
    pub count: u64,
}

/// The pending entries of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingEntries {
    entries: BTreeMap<StreamId, Pending>,
    /// The ids of `entries` by their consumer. Only [`PendingEntries::put`],
    /// [`PendingEntries::remove`] and [`PendingEntries::remove_consumer`] change both.
    owned: BTreeMap<Word, BTreeSet<StreamId>>,
}

impl PendingEntries {
    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry with an id.
    #[must_use]
    pub fn get(&self, id: StreamId) -> Option<&Pending> {
        self.entries.get(&id)
    }

    /// The first id.
    #[must_use]
    pub fn first(&self) -> Option<StreamId> {
        self.entries.first_key_value().map(|(id, _)| *id)
    }

    /// The last id.
    #[must_use]
    pub fn last(&self) -> Option<StreamId> {
        self.entries.last_key_value().map(|(id, _)| *id)
    }

    /// The entries of a range, whose start must not be behind its end.
    pub fn range(
        &self,
        ids: impl RangeBounds<StreamId>,
    ) -> impl Iterator<Item = (StreamId, &Pending)> {
        self.entries.range(ids).map(|(id, pending)| (*id, pending))
    }

    /// How many entries a consumer has.
    #[must_use]
    pub fn count_of(&self, consumer: &[u8]) -> usize {
        self.owned.get(consumer).map_or(0, BTreeSet::len)
    }

    /// The entries of a consumer within a range, whose start must not be behind its end.
    pub fn range_of(
        &self,
        consumer: &[u8],
        ids: impl RangeBounds<StreamId>,
    ) -> impl Iterator<Item = (StreamId, &Pending)> {
        let own = self.owned.get(consumer).map(|own| own.range(ids)).into_iter().flatten();
        own.filter_map(|id| Some((*id, self.entries.get(id)?)))
    }

    /// Sets the entry with an id, whichever consumer has had it.
    pub fn put(&mut self, id: StreamId, pending: Pending) {
        self.remove(id);
        match self.owned.get_mut(&pending.consumer) {
            Some(own) => _ = own.insert(id),
            None => _ = self.owned.insert(pending.consumer.clone(), BTreeSet::from([id])),
        }
        self.entries.insert(id, pending);
    }

    /// Counts one more delivery of an entry to the consumer that has it.
    pub fn deliver_again(&mut self, id: StreamId, now: u64) {
        if let Some(pending) = self.entries.get_mut(&id) {
            pending.delivered_at = now;
            pending.count = pending.count.saturating_add(1);
        }
    }

    /// Removes the entry with an id; whether there was one.
    pub fn remove(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.entries.remove(&id) else { return false };
        // The set stays if it is empty: its consumer is likely to get more.
        if let Some(own) = self.owned.get_mut(&pending.consumer) {
            own.remove(&id);
        }
        true
    }

    /// Removes the entries of a consumer; how many.
    pub fn remove_consumer(&mut self, consumer: &[u8]) -> usize {
        let own = self.owned.remove(consumer).unwrap_or_default();
        for id in &own {
            self.entries.remove(id);
        }
        own.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_below;

    const CONSUMERS: [&[u8]; 3] = [b"one", b"two", b"three"];

    fn check(entries: &PendingEntries, model: &BTreeMap<StreamId, Pending>) {
        assert_eq!(entries.len(), model.len());
        assert!(entries.range(..).eq(model.iter().map(|(id, pending)| (*id, pending))));
        for name in CONSUMERS {
            let is_own = |(_, pending): &(StreamId, &Pending)| *pending.consumer == *name;
            let own: Vec<_> = entries.range(..).filter(is_own).collect();
            assert_eq!(entries.count_of(name), own.len());
            assert!(entries.range_of(name, ..).eq(own.iter().copied()));
            let start = StreamId { ms: 20, number: 0 };
            assert!(
                entries.range_of(name, start..).eq(own.into_iter().filter(|(id, _)| *id >= start))
            );
        }
    }

    #[test]
    fn a_consumer_has_what_a_search_through_all_entries_finds() {
        let (mut entries, mut model) = (PendingEntries::default(), BTreeMap::new());
        for round in 0..3000_u64 {
            let id = StreamId { ms: random_below(50) as u64, number: 0 };
            let consumer = CONSUMERS[random_below(CONSUMERS.len())];
            match random_below(20) {
                0 => {
                    let before = model.len();
                    model.retain(|_, pending: &mut Pending| *pending.consumer != *consumer);
                    assert_eq!(entries.remove_consumer(consumer), before - model.len());
                }
                1..=6 => assert_eq!(entries.remove(id), model.remove(&id).is_some()),
                7..=9 => {
                    entries.deliver_again(id, round);
                    if let Some(pending) = model.get_mut(&id) {
                        (pending.delivered_at, pending.count) = (round, pending.count + 1);
                    }
                }
                _ => {
                    let consumer = consumer.into();
                    let pending = Pending { consumer, delivered_at: round, count: 1 };
                    entries.put(id, pending.clone());
                    model.insert(id, pending);
                }
            }
            check(&entries, &model);
        }
        assert_eq!(entries.first(), model.first_key_value().map(|(id, _)| *id));
        assert_eq!(entries.last(), model.last_key_value().map(|(id, _)| *id));
    }
}
