//! Short words in order, each in a slot of one width, in one allocation.
//!
//! Key decision: sets of a few hundred numbers are common, such as the ids that have a tag. An
//! allocation and a place in a table for each would take ten times the bytes of the numbers. Slots
//! of one width are found by halving, and none of them has to be read for another one.
//!
//! A slot is a length (one byte), the word, and zeros up to the width of the longest word so far.
//! Words are in the order of their lengths, and of their bytes where these are equal.

use std::cmp::Ordering;

/// The longest word: a number of 64 bits with its sign.
pub(crate) const SHORT_MAX: usize = 20;
/// Most words: a change moves those behind it.
const WORDS_MAX: usize = 512;

#[derive(Clone, Debug, Default)]
pub(crate) struct ShortWords {
    /// Bytes of a slot.
    width: usize,
    bytes: Vec<u8>,
}

impl ShortWords {
    /// Different words, if all of them are short, and not too many.
    pub(crate) fn new<'a>(words: impl Iterator<Item = &'a [u8]>) -> Option<ShortWords> {
        let mut short = ShortWords::default();
        for word in words {
            let place = short.find(word).unwrap_or_else(|place| place);
            short.insert(place, word).then_some(())?;
        }
        Some(short)
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len().checked_div(self.width).unwrap_or(0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.width.max(1)).map(word)
    }

    pub(crate) fn get(&self, place: usize) -> Option<&[u8]> {
        let start = place * self.width;
        self.bytes.get(start..start + self.width).map(word)
    }

    /// The place of a word, or else the place that it would have.
    pub(crate) fn find(&self, wanted: &[u8]) -> Result<usize, usize> {
        let mut places = 0..self.len();
        while !places.is_empty() {
            let middle = places.start + places.len() / 2;
            let there = self.get(middle).unwrap_or_default();
            match (there.len(), there).cmp(&(wanted.len(), wanted)) {
                Ordering::Less => places.start = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => places.end = middle,
            }
        }
        Err(places.start)
    }

    /// Puts a word that is not there into its place; whether it is short, and there was room for
    /// it. If not, nothing changed.
    pub(crate) fn insert(&mut self, place: usize, word: &[u8]) -> bool {
        if word.len() > SHORT_MAX || self.len() == WORDS_MAX {
            return false;
        }
        self.widen(1 + word.len());
        let (old, start) = (self.bytes.len(), place * self.width);
        if old == self.bytes.capacity() {
            self.bytes.reserve_exact((old / 8).max(self.width).next_multiple_of(self.width));
        }
        self.bytes.resize(old + self.width, 0);
        self.bytes.copy_within(start..old, start + self.width);
        write(&mut self.bytes[start..start + self.width], word);
        true
    }

    pub(crate) fn remove(&mut self, place: usize) {
        let start = place * self.width;
        self.bytes.drain(start..start + self.width);
        if self.bytes.capacity() > 2 * self.bytes.len() {
            self.bytes.shrink_to_fit();
        }
    }

    /// Bytes of the allocation.
    pub(crate) fn own_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn widen(&mut self, width: usize) {
        if width <= self.width {
            return;
        }
        let mut wide = vec![0; self.len() * width];
        for (slot, word) in wide.chunks_exact_mut(width).zip(self.iter()) {
            write(slot, word);
        }
        *self = ShortWords { width, bytes: wide };
    }
}

fn word(slot: &[u8]) -> &[u8] {
    let [length, rest @ ..] = slot else { return &[] };
    rest.get(..usize::from(*length)).unwrap_or_default()
}

fn write(slot: &mut [u8], word: &[u8]) {
    let (length, rest) = slot.split_at_mut(1);
    length[0] = word.len() as u8;
    let (to, zeros) = rest.split_at_mut(word.len());
    to.copy_from_slice(word);
    zeros.fill(0);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::random_below;

    #[test]
    fn they_are_those_of_a_model_in_order() {
        let (mut words, mut model) = (ShortWords::default(), BTreeSet::new());
        let mut refused = [0; 2];
        for round in 0..40_000 {
            let longest = [7, 12, SHORT_MAX + 2][round / 10_000 % 3];
            let word = vec![b'a' + random_below(26) as u8; random_below(longest)];
            let named = [&random_below(90).to_string().into_bytes()[..], &word].concat();
            let key = (named.len(), named.clone());
            match words.find(&named) {
                Ok(place) if round / 5_000 % 2 == 1 => {
                    words.remove(place);
                    model.remove(&key);
                }
                Ok(place) => assert_eq!(words.get(place), Some(&*named)),
                Err(place) => {
                    let (is_long, is_full) = (named.len() > SHORT_MAX, model.len() == WORDS_MAX);
                    let fits = words.insert(place, &named);
                    assert_eq!(fits, !is_long && !is_full);
                    refused[0] += u32::from(is_long);
                    refused[1] += u32::from(is_full);
                    if fits {
                        model.insert(key);
                    }
                }
            }
            assert_eq!(words.len(), model.len());
            assert!(words.own_bytes() <= 2 * (words.len() + 1) * (SHORT_MAX + 1));
            if round % 100 == 0 {
                assert!(words.iter().eq(model.iter().map(|(_, word)| &**word)));
            }
        }
        assert!(refused.iter().all(|count| *count > 100), "{refused:?}");
    }
}
