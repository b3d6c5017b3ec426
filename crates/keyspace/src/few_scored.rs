//! Few members with scores, in order: packed in one allocation.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::Score;
use crate::packed::{Element, Packed};
use crate::score::compare;

/// Elements are a member and its score (8 bytes, little-endian).
#[derive(Clone, Debug, Default)]
pub(crate) struct FewScored(Packed<2>);

/// There is no room for another member.
pub(crate) struct Full;

impl FewScored {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The score of a member.
    pub(crate) fn score(&self, member: &[u8]) -> Option<Score> {
        self.0.find(member).map(|found| scored(&found).1)
    }

    /// Sets the score of a member, and returns the one that it had.
    ///
    /// # Errors
    /// There is no room; nothing changed.
    pub(crate) fn set(&mut self, member: &[u8], score: Score) -> Result<Option<Score>, Full> {
        let there = self.0.find(member).map(|found| (scored(&found).1, found.place));
        let old = there.as_ref().map(|(old, _)| *old);
        match there {
            Some((old, _)) if old == score => return Ok(Some(old)),
            Some((_, place)) => self.0.remove(place, 1),
            None => {}
        }
        let is_before = |element: &Element<2>| {
            let (other, its) = scored(element);
            compare((its, other), (score, member)) == Ordering::Less
        };
        let next = self.0.iter().find(|element| !is_before(element));
        let start = next.map_or(self.0.end(), |element| element.place.start);
        match self.0.put(start..start, [member, &score.to_le_bytes()]) {
            true => Ok(old),
            false => Err(Full),
        }
    }

    /// Removes a member, and returns its score.
    pub(crate) fn remove(&mut self, member: &[u8]) -> Option<Score> {
        let (score, place) = self.0.find(member).map(|found| (scored(&found).1, found.place))?;
        self.0.remove(place, 1);
        Some(score)
    }

    /// Removes the members of these ranks, and returns them in order.
    pub(crate) fn remove_ranks(&mut self, ranks: Range<usize>) -> Vec<(Score, Arc<[u8]>)> {
        let (mut removed, mut place) = (Vec::new(), None);
        for element in self.0.iter().skip(ranks.start).take(ranks.len()) {
            let (member, score) = scored(&element);
            removed.push((score, member.into()));
            let start = place.map_or(element.place.start, |place: Range<usize>| place.start);
            place = Some(start..element.place.end);
        }
        if let Some(place) = place {
            self.0.remove(place, removed.len());
        }
        removed
    }

    /// The rank of a member, from 0.
    pub(crate) fn rank(&self, member: &[u8]) -> Option<usize> {
        self.0.iter().position(|element| element.words[0] == member)
    }

    /// Number of members at the front for which `is_before` holds.
    pub(crate) fn count_before(&self, is_before: impl Fn(Score, &[u8]) -> bool) -> usize {
        let members = self.upwards(0);
        members.take_while(|(member, score)| is_before(*score, member)).count()
    }

    /// The members from a rank on, upwards.
    pub(crate) fn upwards(&self, rank: usize) -> impl Iterator<Item = (&[u8], Score)> {
        self.0.iter().skip(rank).map(|element| scored(&element))
    }

    /// The members from a rank on, downwards.
    pub(crate) fn downwards(&self, rank: usize) -> impl Iterator<Item = (&[u8], Score)> {
        let end = if rank < self.len() { rank + 1 } else { 0 };
        self.0.range(0..end).rev().map(|element| scored(&element))
    }

    pub(crate) fn own_bytes(&self) -> usize {
        self.0.own_bytes()
    }
}

fn scored<'a>(element: &Element<'a, 2>) -> (&'a [u8], Score) {
    let [member, score] = element.words;
    (member, score.first_chunk().map_or(0.0, |score| Score::from_le_bytes(*score)))
}
