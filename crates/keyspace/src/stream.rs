//! Streams: entries in the order of their ids, and the groups of consumers that read them.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

use crate::list::CUT_LEAST;
use crate::{PendingEntries, Word};

/// The id of an entry: a time in milliseconds, and a number within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    /// Milliseconds since 1970, as a rule.
    pub ms: u64,
    /// Number within that millisecond.
    pub number: u64,
}

/// Fields and values of an entry, in turns.
pub type Fields = Box<[Word]>;

/// Entries in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    entries: BTreeMap<StreamId, Fields>,
    /// The largest id that there ever was.
    pub last: StreamId,
    /// The largest id of an entry that was deleted out of order.
    pub deleted_max: StreamId,
    /// Number of entries that were ever added.
    pub added: u64,
    /// The groups, by name.
    pub groups: BTreeMap<Word, Group>,
}

/// A group of consumers. Each entry goes to one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The last entry that was delivered.
    pub last: StreamId,
    /// Number of entries that were read, if it is known.
    pub read: Option<u64>,
    /// Entries that were delivered and not acknowledged.
    pub pending: PendingEntries,
    /// The consumers, by name.
    pub consumers: BTreeMap<Word, Consumer>,
}

/// A member of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consumer {
    /// When it sent a command last, in milliseconds since 1970.
    pub seen_at: u64,
    /// When it got or claimed an entry last.
    pub active_at: Option<u64>,
}

impl StreamId {
    /// The largest.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, number: u64::MAX };

    /// The next one; `None` after the largest.
    #[must_use]
    pub fn next(self) -> Option<StreamId> {
        match self.number.checked_add(1) {
            Some(number) => Some(StreamId { ms: self.ms, number }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, number: 0 }),
        }
    }

    /// The one before; `None` for the smallest.
    #[must_use]
    pub fn previous(self) -> Option<StreamId> {
        match self.number.checked_sub(1) {
            Some(number) => Some(StreamId { ms: self.ms, number }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, number: u64::MAX }),
        }
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}-{}", self.ms, self.number)
    }
}

impl Stream {
    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry. The key stays: its groups and its last id matter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The id that an entry without one gets at this time; `None` if there is none left.
    #[must_use]
    pub fn next_id(&self, now: u64) -> Option<StreamId> {
        match now > self.last.ms {
            true => Some(StreamId { ms: now, number: 0 }),
            false => self.last.next(),
        }
    }

    /// Adds an entry. Its id must be larger than the last.
    pub fn add(&mut self, id: StreamId, fields: Fields) {
        self.entries.insert(id, fields);
        self.last = id;
        // A restored stream may have any number.
        self.added = self.added.saturating_add(1);
    }

    /// The entry with an id.
    #[must_use]
    pub fn get(&self, id: StreamId) -> Option<&Fields> {
        self.entries.get(&id)
    }

    /// The entries of a range.
    pub fn range(
        &self,
        ids: impl RangeBounds<StreamId>,
    ) -> impl DoubleEndedIterator<Item = (StreamId, &Fields)> {
        self.entries.range(ids).map(|(id, fields)| (*id, fields))
    }

    /// The first entry.
    #[must_use]
    pub fn first(&self) -> Option<(StreamId, &Fields)> {
        self.entries.first_key_value().map(|(id, fields)| (*id, fields))
    }

    /// Removes the entry with an id; whether there was one.
    pub fn remove(&mut self, id: StreamId) -> bool {
        let was_there = self.entries.remove(&id).is_some();
        if was_there {
            self.deleted_max = self.deleted_max.max(id);
        }
        was_there
    }

    /// Removes the first entries. If they are many they are returned, for
    /// [`Hold::discard`](crate::Hold::discard).
    #[must_use]
    pub fn remove_first(&mut self, count: usize) -> Option<Stream> {
        if count < CUT_LEAST {
            (0..count).for_each(|_| _ = self.entries.pop_first());
            return None;
        }
        let first = match self.len().checked_sub(count + 1) {
            None => None,
            Some(behind) if behind < count => self.entries.keys().nth_back(behind),
            Some(_) => self.entries.keys().nth(count),
        };
        let left = match first.copied() {
            Some(first) => self.entries.split_off(&first),
            None => BTreeMap::new(),
        };
        Some(Stream { entries: std::mem::replace(&mut self.entries, left), ..Stream::default() })
    }

    /// Whether entries behind this one may have been deleted out of order.
    #[must_use]
    pub fn has_gaps_after(&self, id: StreamId) -> bool {
        !self.is_empty() && self.deleted_max != StreamId::default() && id <= self.deleted_max
    }

    /// How many entries were ever added up to this id, if that can be told.
    #[must_use]
    pub fn added_up_to(&self, id: StreamId) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if self.is_empty() && id <= self.last || id == self.last {
            return Some(self.added);
        }
        let (first, _) = self.first()?;
        if id > self.last || self.deleted_max >= first && self.deleted_max != StreamId::default() {
            return None;
        }
        let before = self.added.checked_sub(self.len() as u64)?;
        match id.cmp(&first) {
            std::cmp::Ordering::Less => Some(before),
            std::cmp::Ordering::Equal => Some(before.saturating_add(1)),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// How many entries a group has not got yet, if that can be told. Below 0 where clients say
    /// that it has read more than were added.
    #[must_use]
    pub fn lag(&self, group: &Group) -> Option<i64> {
        if self.added == 0 {
            return Some(0);
        }
        let read = group.read.filter(|_| !self.has_gaps_after(group.last));
        let read = read.or_else(|| self.added_up_to(group.last))?;
        Some(self.added.wrapping_sub(read).cast_signed())
    }

    /// Gives an entry to a consumer of a group: the group's last entry is this one.
    pub fn deliver(&self, group: &mut Group, id: StreamId) {
        if id <= group.last {
            return;
        }
        let counted = group.read.filter(|_| !self.has_gaps_after(group.last));
        group.last = id;
        group.read = match counted {
            Some(read) => Some(read.saturating_add(1)),
            None => self.added_up_to(id),
        };
    }

    /// Bytes of the entries, by the first of them.
    pub(crate) fn estimated_bytes(&self, samples: usize) -> usize {
        let taken = if samples == 0 { self.len() } else { samples.min(self.len()) };
        let bytes = |fields: &Fields| 64 + fields.iter().map(|word| word.len() + 24).sum::<usize>();
        let sum: usize = self.entries.values().take(taken).map(bytes).sum();
        let pending: usize =
            self.groups.values().map(|group| 104 * group.pending.len() + 200).sum();
        pending + (sum as u128 * self.len() as u128 / taken.max(1) as u128) as usize
    }
}

impl Group {
    /// Notes the consumer of a name as seen.
    pub fn see(&mut self, name: &[u8], now: u64) -> Sight {
        /// To so many milliseconds it is known after a restart when a consumer was seen. Else one
        /// that polls for entries would have the log grow for ever.
        const KEPT_MS: u64 = 60_000;
        let Some(consumer) = self.consumers.get_mut(name) else {
            let consumer = Consumer { seen_at: now, ..Consumer::default() };
            self.consumers.insert(name.into(), consumer);
            return Sight::First;
        };
        let before = std::mem::replace(&mut consumer.seen_at, now);
        if before / KEPT_MS == now / KEPT_MS { Sight::Again } else { Sight::Later }
    }

    /// Notes that a consumer got an entry.
    pub fn note_active(&mut self, name: &[u8], now: u64) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.active_at = Some(now);
        }
    }
}

/// What it means that a consumer is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The consumer is new.
    First,
    /// It was seen last in another minute: a log is to have that.
    Later,
    /// It was seen in this minute before.
    Again,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, number: u64) -> StreamId {
        StreamId { ms, number }
    }

    #[test]
    fn ids_only_grow() {
        let mut stream = Stream::default();
        assert_eq!(stream.next_id(5), Some(id(5, 0)));
        stream.add(id(7, 3), Box::default());
        // The clock has gone back.
        assert_eq!(stream.next_id(5), Some(id(7, 4)));
        stream.last = StreamId::MAX;
        assert_eq!(stream.next_id(5), None);
        stream.added = u64::MAX;
        stream.add(StreamId::MAX, Box::default());
        assert_eq!(stream.added, u64::MAX);
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(id(2, 0).previous(), Some(id(1, u64::MAX)));
    }

    #[test]
    fn the_first_entries_go_one_by_one_or_cut_off() {
        for (entries, count) in [(0, 0), (5, 3), (5, 9), (2000, 511), (2000, 512), (2000, 1900)] {
            let mut stream = Stream::default();
            (1..=entries).for_each(|number| stream.add(id(number, 0), Box::default()));
            let cut = stream.remove_first(count);
            let removed = entries.min(count as u64);
            assert!(stream.range(..).map(|(id, _)| id.ms).eq(removed + 1..=entries));
            assert_eq!((stream.last, stream.added), (id(entries, 0), entries));
            let cut = cut.iter().flat_map(|cut| cut.range(..)).map(|(id, _)| id.ms);
            assert!(cut.eq(1..=if count < CUT_LEAST { 0 } else { removed }));
        }
        let mut stream = Stream::default();
        (1..=600).for_each(|number| stream.add(id(number, 0), Box::default()));
        assert_eq!(stream.remove_first(600).unwrap().len(), 600);
        assert!(stream.is_empty());
    }

    #[test]
    fn the_lag_of_a_group_is_told_where_it_is_known() {
        let mut stream = Stream::default();
        (1..=5).for_each(|number| stream.add(id(number, 0), Box::default()));
        let mut group = Group::default();
        assert_eq!(stream.lag(&group), Some(5));
        for number in 1..=2 {
            stream.deliver(&mut group, id(number, 0));
        }
        assert_eq!((group.read, stream.lag(&group)), (Some(2), Some(3)));
        // An entry that was not delivered is gone: how many are left is not known.
        stream.remove(id(4, 0));
        assert_eq!(stream.lag(&group), None);
        stream.deliver(&mut group, id(5, 0));
        assert_eq!(stream.lag(&group), Some(0));
        group.read = Some(7);
        assert_eq!(stream.lag(&group), Some(-2));
    }
    #[test]
    fn a_consumer_that_polls_is_noted_once_a_minute() {
        let mut group = Group::default();
        let seen: Vec<Sight> =
            [1, 59_999, 60_000, 119_999, 5].map(|now| group.see(b"c", now)).into();
        assert_eq!(seen, [Sight::First, Sight::Again, Sight::Later, Sight::Again, Sight::Later]);
        assert_eq!(group.consumers[&b"c"[..]].seen_at, 5);
    }
}
