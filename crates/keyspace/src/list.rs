//! Lists: elements in order.

use std::collections::VecDeque;
use std::ops::Range;

use either::Either;

use crate::Word;
use crate::packed::{Element, Packed};

/// Fewer elements are removed one by one: that takes less time than having another thread do it.
pub(crate) const CUT_LEAST: usize = 512;

/// So few elements are removed one by one: each moves those between it and the nearer end only.
const FEW: usize = 8;
/// Room for so many elements is not given back.
const SPARE_LEAST: usize = 64;

/// Elements in order.
#[derive(Clone, Debug)]
pub struct List(Form);

#[derive(Clone, Debug)]
#[expect(clippy::box_collection, reason = "a deque would make all values larger")]
enum Form {
    Packed(Packed<1>),
    Deque(Box<VecDeque<Word>>),
}

impl Default for List {
    fn default() -> List {
        List(Form::Packed(Packed::default()))
    }
}

impl List {
    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(packed) => packed.len(),
            Form::Deque(deque) => deque.len(),
        }
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at a place, from 0.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&[u8]> {
        match &self.0 {
            Form::Packed(packed) => packed.iter().nth(place).map(word),
            Form::Deque(deque) => deque.get(place).map(|element| &**element),
        }
    }

    /// All elements.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.range(0..self.len())
    }

    /// The elements of some places, all of which must be there.
    pub fn range(&self, places: Range<usize>) -> impl DoubleEndedIterator<Item = &[u8]> {
        match &self.0 {
            Form::Packed(packed) => Either::Left(packed.range(places).map(word)),
            Form::Deque(deque) => Either::Right(deque.range(places).map(|element| &**element)),
        }
    }

    /// Adds an element before all others.
    pub fn push_front(&mut self, element: &[u8]) {
        self.insert(0, element);
    }

    /// Adds an element behind all others.
    pub fn push_back(&mut self, element: &[u8]) {
        self.insert(self.len(), element);
    }

    /// Removes the first element, and returns it.
    pub fn pop_front(&mut self) -> Option<Word> {
        match &mut self.0 {
            Form::Packed(packed) => take(packed, 0),
            Form::Deque(deque) => deque.pop_front().inspect(|_| shrink(deque)),
        }
    }

    /// Removes the last element, and returns it.
    pub fn pop_back(&mut self) -> Option<Word> {
        match &mut self.0 {
            Form::Packed(packed) => take(packed, packed.len().checked_sub(1)?),
            Form::Deque(deque) => deque.pop_back().inspect(|_| shrink(deque)),
        }
    }

    /// Adds an element at a place from 0 to the length.
    pub fn insert(&mut self, place: usize, element: &[u8]) {
        match &mut self.0 {
            Form::Packed(packed) => {
                let next = if place < packed.len() { packed.iter().nth(place) } else { None };
                let start = next.map_or(packed.end(), |next| next.place.start);
                if !packed.put(start..start, [element]) {
                    self.unpack();
                    self.insert(place, element);
                }
            }
            Form::Deque(deque) => deque.insert(place, element.into()),
        }
    }

    /// Sets the element at a place; whether it is there.
    pub fn set(&mut self, place: usize, element: &[u8]) -> bool {
        match &mut self.0 {
            Form::Packed(packed) => {
                let there = packed.iter().nth(place).map(|there| there.place);
                let Some(there) = there else { return false };
                if packed.put(there, [element]) {
                    return true;
                }
                self.unpack();
                self.set(place, element)
            }
            Form::Deque(deque) => {
                deque.get_mut(place).map(|there| *there = element.into()).is_some()
            }
        }
    }

    /// Removes the first elements that are equal to one, at most so many, or with `from_end` the
    /// last ones. Returns how many there were.
    pub fn remove_equal(&mut self, wanted: &[u8], most: usize, from_end: bool) -> usize {
        let before = self.len();
        match &mut self.0 {
            Form::Packed(packed) => {
                let equal = packed.iter().filter(|element| element.words[0] == wanted);
                let mut places: Vec<Range<usize>> = equal.map(|element| element.place).collect();
                let kept = places.len().saturating_sub(most);
                match from_end {
                    true => _ = places.drain(..kept),
                    false => places.truncate(most),
                }
                for place in places.into_iter().rev() {
                    packed.remove(place, 1);
                }
            }
            Form::Deque(deque) => {
                let is_equal = |place: &usize| *deque[*place] == *wanted;
                let mut places: Vec<usize> = match from_end {
                    true => (0..deque.len()).rev().filter(is_equal).take(most).collect(),
                    false => (0..deque.len()).filter(is_equal).take(most).collect(),
                };
                places.sort_unstable();
                remove_places(deque, &places);
                shrink(deque);
            }
        }
        before - self.len()
    }

    /// Removes all elements but those of some places. If they are many they are returned, for
    /// [`Hold::discard`](crate::Hold::discard).
    #[must_use]
    pub fn keep_only(&mut self, kept: Range<usize>) -> Option<List> {
        match &mut self.0 {
            Form::Packed(packed) => {
                packed.keep_only(kept);
                None
            }
            Form::Deque(deque) if deque.len() - kept.len() < CUT_LEAST => {
                deque.truncate(kept.end);
                deque.drain(..kept.start);
                shrink(deque);
                None
            }
            Form::Deque(deque) => {
                let mut cut = deque.split_off(kept.end);
                cut.extend(deque.drain(..kept.start));
                shrink(deque);
                Some(List(Form::Deque(Box::new(cut))))
            }
        }
    }

    /// Bytes of its allocation, if its elements have none of their own.
    pub(crate) fn packed_bytes(&self) -> Option<usize> {
        match &self.0 {
            Form::Packed(packed) => Some(packed.own_bytes()),
            Form::Deque(_) => None,
        }
    }

    /// Bytes of its allocations but for those of elements.
    pub(crate) fn own_bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(packed) => packed.own_bytes(),
            Form::Deque(deque) => {
                size_of::<VecDeque<Word>>() + deque.capacity() * size_of::<Word>()
            }
        }
    }

    fn unpack(&mut self) {
        let deque = self.iter().map(Word::from).collect();
        self.0 = Form::Deque(Box::new(deque));
    }
}

impl FromIterator<Word> for List {
    fn from_iter<I: IntoIterator<Item = Word>>(elements: I) -> List {
        let mut list = List::default();
        for element in elements {
            match &mut list.0 {
                Form::Packed(_) => list.push_back(&element),
                Form::Deque(deque) => deque.push_back(element),
            }
        }
        list
    }
}

/// Removes the elements of some places, in ascending order.
fn remove_places(deque: &mut VecDeque<Word>, places: &[usize]) {
    if places.len() <= FEW {
        for place in places.iter().rev() {
            deque.remove(*place);
        }
        return;
    }
    let mut removed = places.iter().copied().peekable();
    let mut place = 0;
    deque.retain(|_| {
        let is_removed = removed.next_if_eq(&place).is_some();
        place += 1;
        !is_removed
    });
}

/// Gives back room of elements that have gone, once it is most of the room.
fn shrink(deque: &mut VecDeque<Word>) {
    if deque.capacity() > 4 * deque.len() + SPARE_LEAST {
        deque.shrink_to(2 * deque.len());
    }
}

fn word(element: Element<'_, 1>) -> &[u8] {
    element.words[0]
}

/// Removes the element at a place, and returns it.
fn take(packed: &mut Packed<1>, place: usize) -> Option<Word> {
    let element = packed.iter().nth(place)?;
    let (taken, place) = (Word::from(element.words[0]), element.place);
    packed.remove(place, 1);
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_below;

    #[test]
    fn a_list_keeps_some_places_and_gives_the_others_if_they_are_many() {
        let number = |word: &[u8]| u16::from_be_bytes(word.try_into().unwrap());
        for (length, kept) in [
            (10, 3..7),
            (10, 0..0),
            (1000, 0..490),
            (1000, 600..1000),
            (1000, 400..410),
            (1000, 5..495),
            (1000, 0..0),
        ] {
            let numbers = 0..length;
            let words = numbers.map(|number: u16| Word::from(number.to_be_bytes()));
            let mut list: List = words.collect();
            let cut = list.keep_only(kept.clone());
            let (start, end) = (kept.start as u16, kept.end as u16);
            assert!(list.iter().map(number).eq(start..end));
            assert_eq!(cut.is_some(), usize::from(length) - kept.len() >= CUT_LEAST);
            if let Some(cut) = cut {
                assert!(cut.iter().map(number).eq((end..length).chain(0..start)));
            }
        }
    }

    #[test]
    fn the_few_that_are_left_of_many_take_little_room() {
        let shrinks: [fn(&mut List); 4] = [
            |list| (0..19_990).for_each(|_| _ = list.pop_front()),
            |list| (0..19_990).for_each(|_| _ = list.pop_back()),
            |list| _ = list.keep_only(100..110),
            |list| _ = list.remove_equal(b"same", usize::MAX, false),
        ];
        for shrink in shrinks {
            let mut list = List::default();
            (0..20_000).for_each(|number| match number % 2000 {
                0 => list.push_back(b"other"),
                _ => list.push_back(b"same"),
            });
            shrink(&mut list);
            assert_eq!(list.len(), 10);
            assert!(list.own_bytes() < 10_000, "{}", list.own_bytes());
        }
    }

    /// Lengths around that from which elements are no longer packed.
    #[test]
    fn short_and_long_lists_hold_what_a_vector_holds() {
        for most in [5, 125, 131, 200] {
            let (mut list, mut model) = (List::default(), Vec::<Vec<u8>>::new());
            for round in 0..6000 {
                let element = random_below(20).to_string().repeat(1 + round % 2).into_bytes();
                let place = random_below(model.len() + 1);
                match random_below(9) {
                    0 => assert_eq!(
                        list.pop_front().as_deref(),
                        (!model.is_empty()).then(|| model.remove(0)).as_deref()
                    ),
                    1 => assert_eq!(list.pop_back().as_deref(), model.pop().as_deref()),
                    2 if round % 50 == 0 => {
                        let end = place + random_below(model.len() - place + 1);
                        assert!(list.keep_only(place..end).is_none());
                        model = model[place..end].to_vec();
                    }
                    3 if round % 5 == 0 => {
                        let count = [0, 1, 2, usize::MAX][random_below(4)];
                        let from_end = random_below(2) == 0;
                        let is_equal = |place: &usize| model[*place] == element;
                        let mut places: Vec<_> = (0..model.len()).filter(is_equal).collect();
                        if from_end {
                            places.reverse();
                        }
                        places.truncate(count);
                        assert_eq!(list.remove_equal(&element, count, from_end), places.len());
                        places.sort_unstable();
                        for place in places.into_iter().rev() {
                            model.remove(place);
                        }
                    }
                    4 => {
                        assert_eq!(list.set(place, &element), place < model.len());
                        if let Some(there) = model.get_mut(place) {
                            *there = element;
                        }
                    }
                    _ if model.len() >= most => {}
                    5 => {
                        list.push_front(&element);
                        model.insert(0, element);
                    }
                    6 => {
                        list.insert(place, &element);
                        model.insert(place, element);
                    }
                    _ => {
                        list.push_back(&element);
                        model.push(element);
                    }
                }
                assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
                assert!(list.iter().eq(&model));
                let place = random_below(model.len() + 1);
                assert_eq!(list.get(place), model.get(place).map(|element| &**element));
                let end = place + random_below(model.len() - place + 1);
                assert!(list.range(place..end).rev().eq(model[place..end].iter().rev()));
            }
        }
    }
}
