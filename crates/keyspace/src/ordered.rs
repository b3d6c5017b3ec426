//! Elements in order, with ranks: a list of short sorted lists.
//!
//! An insertion moves at most a short list. A rank is found by adding up the lengths of the lists
//! before it or of those from it on, which for a million elements are a few thousand numbers.

use std::cmp::Ordering;
use std::ops::Range;

/// Most elements of a short list before it is halved.
const CHUNK_MAX: usize = 256;
/// Room for so many more elements is not given back: those that come are likely to take it.
const SPARE_LEAST: usize = 3;

/// Elements in order, each once.
#[derive(Debug)]
pub(crate) struct Ordered<T> {
    /// None is empty.
    chunks: Vec<Vec<T>>,
    len: usize,
    /// Places of all lists: those taken, and those to spare.
    places: usize,
}

impl<T> Default for Ordered<T> {
    fn default() -> Ordered<T> {
        Ordered { chunks: Vec::new(), len: 0, places: 0 }
    }
}

/// A copy has no places to spare.
impl<T: Clone> Clone for Ordered<T> {
    fn clone(&self) -> Ordered<T> {
        let chunks = self.chunks.clone();
        let places = chunks.iter().map(Vec::capacity).sum();
        Ordered { chunks, len: self.len, places }
    }
}

impl<T> Ordered<T> {
    /// Number of elements at the front for which `is_before` holds. It must hold for none after
    /// the first for which it does not.
    pub(crate) fn count_before(&self, is_before: impl Fn(&T) -> bool) -> usize {
        let whole = |chunk: &Vec<T>| chunk.last().is_some_and(&is_before);
        let first = self.chunks.partition_point(whole);
        let within = self.chunks.get(first).map_or(0, |chunk| chunk.partition_point(is_before));
        self.len_of_first(first) + within
    }

    /// Inserts an element before the first that is not less.
    pub(crate) fn insert(&mut self, element: T, order: impl Fn(&T, &T) -> Ordering) {
        self.len += 1;
        let is_before = |other: &T| order(other, &element) == Ordering::Less;
        let place = self.chunks.partition_point(|chunk| chunk.last().is_some_and(is_before));
        // Behind the last element: into the last list.
        let place = place.min(self.chunks.len().saturating_sub(1));
        let Some(chunk) = self.chunks.get_mut(place) else {
            // Most sorted sets stay that small: a push would make room for four.
            self.chunks.reserve_exact(1);
            let chunk = vec![element];
            self.places = chunk.capacity();
            self.chunks.push(chunk);
            return;
        };
        let within = chunk.partition_point(is_before);
        let before = chunk.capacity();
        if chunk.len() == before {
            chunk.reserve_exact(chunk.len().clamp(1, 16));
        }
        self.places += chunk.capacity() - before;
        chunk.insert(within, element);
        if chunk.len() > CHUNK_MAX {
            // Elements that come in order fill each list.
            let at = if within == CHUNK_MAX { CHUNK_MAX - 8 } else { CHUNK_MAX / 2 };
            let upper = chunk.split_off(at);
            self.places += upper.capacity();
            self.chunks.insert(place + 1, upper);
        }
    }

    /// Removes the element with this rank.
    pub(crate) fn remove(&mut self, rank: usize) -> Option<T> {
        let (place, within) = self.place(rank)?;
        let chunk = self.chunks.get_mut(place)?;
        let element = chunk.remove(within);
        self.len -= 1;
        if chunk.is_empty() {
            self.places -= chunk.capacity();
            self.chunks.remove(place);
        }
        self.tighten(place);
        Some(element)
    }

    /// Removes the elements of these ranks, and returns them in order.
    pub(crate) fn remove_range(&mut self, ranks: Range<usize>) -> Vec<T> {
        let Some((first, mut within)) = self.place(ranks.start) else { return Vec::new() };
        let wanted = ranks.len().min(self.len - ranks.start);
        if wanted == 0 {
            return Vec::new();
        }
        let mut removed = Vec::with_capacity(wanted);
        let mut end = first;
        while removed.len() < wanted {
            let chunk = &mut self.chunks[end];
            let last = chunk.len().min(within + wanted - removed.len());
            removed.extend(chunk.drain(within..last));
            (end, within) = (end + 1, 0);
        }
        self.len -= wanted;
        // Elements are left at most in the first and the last of these lists.
        let is_left = |place: usize| self.chunks.get(place).is_some_and(|chunk| !chunk.is_empty());
        let emptied = first + usize::from(is_left(first))..end - usize::from(is_left(end - 1));
        if !emptied.is_empty() {
            let gone = self.chunks.drain(emptied);
            self.places -= gone.map(|chunk| chunk.capacity()).sum::<usize>();
        }
        self.tighten(first + 1);
        self.tighten(first);
        removed
    }

    /// Takes no more memory than needed for a list that has become shorter: joins it with one of
    /// its neighbours if both are short.
    fn tighten(&mut self, place: usize) {
        let len = |place: usize| self.chunks.get(place).map_or(CHUNK_MAX, Vec::len);
        let mut pairs = [place, place.wrapping_sub(1)].into_iter();
        let are_short = |first: &usize| len(*first) + len(first.wrapping_add(1)) <= CHUNK_MAX / 2;
        let place = match pairs.find(are_short) {
            Some(first) => {
                let next = self.chunks.remove(first + 1);
                self.places -= next.capacity();
                self.change(first, |chunk| chunk.extend(next));
                first
            }
            None => place,
        };
        self.change(place, shrink);
        shrink(&mut self.chunks);
    }

    /// Changes a list, if it is there, and counts the places that it gets or gives back.
    fn change(&mut self, place: usize, change: impl FnOnce(&mut Vec<T>)) {
        let Some(chunk) = self.chunks.get_mut(place) else { return };
        let before = chunk.capacity();
        change(chunk);
        self.places = self.places + chunk.capacity() - before;
    }

    /// The elements from a rank on, upwards.
    pub(crate) fn upwards(&self, rank: usize) -> impl Iterator<Item = &T> {
        let (place, within) = self.place(rank).unwrap_or((self.chunks.len(), 0));
        self.chunks[place..].iter().flatten().skip(within)
    }

    /// The elements from a rank on, downwards.
    pub(crate) fn downwards(&self, rank: usize) -> impl Iterator<Item = &T> {
        let (end, skipped) = match self.place(rank) {
            Some((place, within)) => (place + 1, self.chunks[place].len() - 1 - within),
            None => (0, 0),
        };
        self.chunks[..end].iter().rev().flat_map(|chunk| chunk.iter().rev()).skip(skipped)
    }

    /// Bytes of the lists themselves.
    pub(crate) fn own_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Vec<T>>() + self.places * size_of::<T>()
    }

    fn place(&self, rank: usize) -> Option<(usize, usize)> {
        if rank >= self.len {
            return None;
        }
        if rank >= self.len / 2 {
            let mut start = self.len;
            for (place, chunk) in self.chunks.iter().enumerate().rev() {
                start -= chunk.len();
                if start <= rank {
                    return Some((place, rank - start));
                }
            }
        }
        let mut before = rank;
        for (place, chunk) in self.chunks.iter().enumerate() {
            if before < chunk.len() {
                return Some((place, before));
            }
            before -= chunk.len();
        }
        None
    }

    /// Number of elements in the first lists, of which there are so many.
    fn len_of_first(&self, lists: usize) -> usize {
        let sum = |chunks: &[Vec<T>]| chunks.iter().map(Vec::len).sum::<usize>();
        match lists > self.chunks.len() / 2 {
            true => self.len - sum(&self.chunks[lists..]),
            false => sum(&self.chunks[..lists]),
        }
    }
}

fn shrink<T>(elements: &mut Vec<T>) {
    if elements.capacity() > 2 * elements.len() + SPARE_LEAST {
        elements.shrink_to(elements.len() + elements.len() / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_below;

    /// The room of elements that have gone is given back.
    fn check_room<T>(ordered: &Ordered<T>) {
        let [one, more] = [CHUNK_MAX * size_of::<T>(), 10 * ordered.len * size_of::<T>()];
        let lists = 4 * (ordered.len / 32 + 1) * size_of::<Vec<T>>();
        assert!(ordered.own_bytes() <= one + more + lists, "{} of {}", ordered.own_bytes(), more);
        let places: usize = ordered.chunks.iter().map(Vec::capacity).sum();
        assert_eq!(ordered.places, places);
    }

    #[test]
    fn the_few_that_are_left_of_many_take_little_room() {
        let mut ordered = Ordered::default();
        for number in 0..50_000 {
            ordered.insert(number, Ord::cmp);
        }
        for number in (0..50_000).filter(|number| number % 200 != 0) {
            let rank = ordered.count_before(|other| *other < number);
            assert_eq!(ordered.remove(rank), Some(number));
        }
        assert!(ordered.upwards(0).eq((0..50_000).step_by(200).collect::<Vec<_>>().iter()));
        check_room(&ordered);
    }

    #[test]
    fn it_holds_what_a_sorted_list_holds() {
        let (mut ordered, mut model) = (Ordered::default(), Vec::<usize>::new());
        for round in 0..20_000 {
            let shrinks = round > 12_000;
            if shrinks && !model.is_empty() {
                let rank = random_below(model.len());
                assert_eq!(ordered.remove(rank), Some(model.remove(rank)));
                check_room(&ordered);
                continue;
            }
            let element = if round % 2 == 0 { round } else { random_below(1 << 30) };
            let rank = model.partition_point(|other| *other < element);
            assert_eq!(ordered.count_before(|other| *other < element), rank);
            if model.get(rank) != Some(&element) {
                model.insert(rank, element);
                ordered.insert(element, Ord::cmp);
            }
        }
        assert_eq!(ordered.len, model.len());
        check_room(&ordered.clone());
        for rank in [0, 1, model.len() / 2, model.len() - 1] {
            assert!(ordered.upwards(rank).eq(&model[rank..]));
            assert!(ordered.downwards(rank).eq(model[..=rank].iter().rev()));
        }
        assert_eq!(ordered.upwards(model.len()).count(), 0);
        assert_eq!(ordered.downwards(model.len()).count(), 0);
    }

    #[test]
    fn ranges_are_removed_from_within_lists_and_across_them() {
        for round in 0..300 {
            let (mut ordered, mut model) = (Ordered::default(), Vec::new());
            for element in 0..1500 {
                ordered.insert(element, Ord::cmp);
                model.push(element);
            }
            while !model.is_empty() {
                let start = random_below(model.len() + 1);
                let start = if round % 3 == 0 { 0 } else { start };
                let end = start + random_below(if round % 2 == 0 { 10 } else { 1000 });
                let within = start..end.min(model.len());
                let expected: Vec<usize> = model.drain(within).collect();
                assert_eq!(ordered.remove_range(start..end), expected);
                assert!(ordered.upwards(0).eq(&model));
                assert_eq!(ordered.len, model.len());
                assert!(ordered.chunks.iter().all(|chunk| !chunk.is_empty()));
                check_room(&ordered);
                if expected.is_empty() {
                    break;
                }
            }
            for (rank, element) in model.iter().enumerate() {
                assert_eq!(ordered.upwards(rank).next(), Some(element));
                assert_eq!(ordered.count_before(|other| other < element), rank);
            }
        }
    }
}
