//! The elements of a small collection, one behind the other in one allocation.
//!
//! Key decision: most collections have a few short elements. With an allocation and a place in a
//! table for each they would take four times the memory. Here an element is found by looking at
//! those before it, which for so few bytes takes no longer than a lookup in a table.
//!
//! An element is as many words as `WORDS` says; the first is its name. The bytes are the number of
//! elements (one byte), then each word behind its length. A length is one byte; [`LONG`] stands
//! for two more that hold it, little-endian. Without elements there are no bytes.

use std::ops::Range;

/// Most elements.
const ELEMENTS_MAX: usize = 128;
/// Most bytes of all elements: a change moves those behind it.
const BYTES_MAX: usize = 4 << 10;
/// In place of a length: it is in the next two bytes.
const LONG: u8 = u8::MAX;
/// Bytes of the number of elements.
const HEAD_BYTES: usize = 1;

/// Elements of so many words each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed<const WORDS: usize> {
    bytes: Vec<u8>,
}

/// An element: its words, and where its bytes are.
pub(crate) struct Element<'a, const WORDS: usize> {
    pub(crate) words: [&'a [u8]; WORDS],
    pub(crate) place: Range<usize>,
}

impl<const WORDS: usize> Packed<WORDS> {
    pub(crate) fn len(&self) -> usize {
        self.bytes.first().copied().map_or(0, usize::from)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Element<'_, WORDS>> {
        let mut next = HEAD_BYTES;
        (0..self.len()).map_while(move |_| {
            let element = self.element(next)?;
            next = element.place.end;
            Some(element)
        })
    }

    /// The elements of some places, for a walk from either end.
    pub(crate) fn range(
        &self,
        places: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = Element<'_, WORDS>> {
        let mut starts = [0_u16; ELEMENTS_MAX];
        for (slot, element) in starts.iter_mut().zip(self.iter()) {
            *slot = element.place.start as u16;
        }
        let end = places.end.min(self.len());
        let start = move |place: usize| starts.get(place).copied().map(usize::from);
        (places.start..end).filter_map(move |place| self.element(start(place)?))
    }

    /// The element with a name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Element<'_, WORDS>> {
        self.iter().find(|element| element.words[0] == name)
    }

    /// Where an element would be that is behind all others.
    pub(crate) fn end(&self) -> usize {
        self.bytes.len().max(HEAD_BYTES)
    }

    /// Puts an element in the place of another one, or with an empty place between others; whether
    /// there was room for it. If not, nothing changed.
    pub(crate) fn put(&mut self, place: Range<usize>, words: [&[u8]; WORDS]) -> bool {
        let is_new = place.is_empty();
        let added: usize = words.iter().map(|word| packed_bytes(word)).sum();
        let length = self.end() + added - place.len();
        if length > BYTES_MAX || is_new && self.len() == ELEMENTS_MAX {
            return false;
        }
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(capacity(length));
            self.bytes.push(0);
        }
        self.bytes[0] += u8::from(is_new);
        self.resize(place.clone(), added);
        let mut rest = &mut self.bytes[place.start..place.start + added];
        for word in words {
            rest = write(rest, word);
        }
        true
    }

    /// Removes elements that are `count` with these bytes.
    pub(crate) fn remove(&mut self, place: Range<usize>, count: usize) {
        if count == self.len() {
            self.bytes = Vec::new();
            return;
        }
        self.bytes[0] -= count as u8;
        self.resize(place, 0);
    }

    /// Removes all elements but those of some places.
    pub(crate) fn keep_only(&mut self, kept: Range<usize>) {
        let (mut place, mut count) = (HEAD_BYTES..HEAD_BYTES, 0);
        for (number, element) in self.iter().take(kept.end).enumerate() {
            match number < kept.start {
                true => place = element.place.end..element.place.end,
                false => (place.end, count) = (element.place.end, count + 1),
            }
        }
        let length = self.len();
        if count == 0 {
            self.bytes = Vec::new();
            return;
        }
        self.remove(place.end..self.end(), length - count - kept.start);
        self.remove(HEAD_BYTES..place.start, kept.start);
    }

    /// Bytes of the allocation.
    pub(crate) fn own_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Makes a gap of `length` bytes of a place.
    fn resize(&mut self, place: Range<usize>, length: usize) {
        let (old, end) = (self.bytes.len(), place.start + length);
        let new = old - place.len() + length;
        if new > self.bytes.capacity() {
            self.bytes.reserve_exact(capacity(new) - old);
        }
        self.bytes.resize(old.max(new), 0);
        self.bytes.copy_within(place.end..old, end);
        self.bytes.truncate(new);
        if self.bytes.capacity() > 2 * capacity(new) {
            self.bytes.shrink_to(capacity(new));
        }
    }

    fn element(&self, start: usize) -> Option<Element<'_, WORDS>> {
        let (mut words, mut end) = ([&[][..]; WORDS], start);
        for slot in &mut words {
            (*slot, end) = word(&self.bytes, end)?;
        }
        Some(Element { words, place: start..end })
    }
}

/// The word that begins at a place, and where the next one does.
fn word(bytes: &[u8], start: usize) -> Option<(&[u8], usize)> {
    let (length, start) = match *bytes.get(start)? {
        LONG => {
            let length = bytes.get(start + 1..start + 3)?.try_into().ok()?;
            (usize::from(u16::from_le_bytes(length)), start + 3)
        }
        length => (usize::from(length), start + 1),
    };
    Some((bytes.get(start..start + length)?, start + length))
}

/// Writes a word, and returns the bytes behind it.
fn write<'a>(to: &'a mut [u8], word: &[u8]) -> &'a mut [u8] {
    let (head, rest) = to.split_at_mut(packed_bytes(word) - word.len());
    match head {
        [short] => *short = word.len() as u8,
        _ => {
            head[0] = LONG;
            head[1..].copy_from_slice(&(word.len() as u16).to_le_bytes());
        }
    }
    let (to, rest) = rest.split_at_mut(word.len());
    to.copy_from_slice(word);
    rest
}

fn packed_bytes(word: &[u8]) -> usize {
    word.len() + if word.len() < usize::from(LONG) { 1 } else { 3 }
}

/// The bytes to allocate for so many: some more, so that not every change allocates anew, and what
/// the allocator would add anyway.
fn capacity(bytes: usize) -> usize {
    (bytes + bytes / 8 + 8).next_multiple_of(16) - 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_below;

    fn all(packed: &Packed<2>) -> Vec<(Vec<u8>, Vec<u8>)> {
        packed.iter().map(|element| element.words.map(<[u8]>::to_vec).into()).collect()
    }

    #[test]
    fn it_holds_what_a_list_holds() {
        let (mut packed, mut model) = (Packed::<2>::default(), Vec::new());
        let mut refused = [0; 2];
        for round in 0..40_000 {
            let grows = round / 1000 % 2 == 0;
            let name = random_below(160).to_string().into_bytes();
            let lengths = [0, 3, 254, 255, 256, 1000];
            let longest = if round / 2000 % 2 == 0 { 2 } else { lengths.len() };
            let value = vec![b'v'; lengths[random_below(longest)]];
            let there = model.iter().position(|(other, _)| *other == name);
            let place = packed.find(&name).map(|element| element.place);
            assert_eq!(place.is_some(), there.is_some());
            match (place, there) {
                (Some(place), Some(index)) if !grows => {
                    packed.remove(place, 1);
                    model.remove(index);
                }
                (Some(place), Some(index)) => {
                    if packed.put(place, [&name, &value]) {
                        model[index].1 = value;
                    }
                }
                _ => {
                    let index = random_below(model.len() + 1);
                    let before = packed.iter().nth(index).map(|element| element.place.start);
                    let start = before.unwrap_or(packed.end());
                    let is_full = model.len() == ELEMENTS_MAX;
                    let bytes = packed_bytes(&name) + packed_bytes(&value);
                    let is_long = packed.end() + bytes > BYTES_MAX;
                    let fits = packed.put(start..start, [&name, &value]);
                    assert_eq!(fits, !is_full && !is_long);
                    refused[0] += u32::from(is_full);
                    refused[1] += u32::from(is_long);
                    if fits {
                        model.insert(index, (name, value));
                    }
                }
            }
            assert_eq!(packed.len(), model.len());
            assert_eq!(all(&packed), model);
            assert!(packed.own_bytes() <= 2 * capacity(packed.bytes.len()));
            assert_eq!(packed.own_bytes() == 0, model.is_empty());
        }
        assert!(refused.iter().all(|count| *count > 100), "{refused:?}");
    }

    #[test]
    fn several_elements_are_removed_at_once() {
        let mut packed = Packed::<1>::default();
        for name in ["a", "b", "c", "d", "e"] {
            packed.put(packed.end()..packed.end(), [name.as_bytes()]);
        }
        let places: Vec<_> = packed.iter().map(|element| element.place).collect();
        packed.remove(places[1].start..places[3].end, 3);
        assert!(packed.iter().map(|element| element.words[0]).eq([b"a", b"e"]));
        packed.remove(places[0].start..packed.end(), 2);
        assert_eq!((packed.len(), packed.own_bytes()), (0, 0));
    }
}
