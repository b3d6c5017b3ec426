//! Sets: members.

use either::{Left, Right};

use crate::packed::Packed;
use crate::short_words::ShortWords;
use crate::value::hash_of;
use crate::{Table, Word, random_below};

/// Members.
#[derive(Clone, Debug)]
pub struct Set(Form);

#[derive(Clone, Debug)]
enum Form {
    /// Members in the order in which they came.
    Packed(Packed<1>),
    /// More members, if each is short.
    Short(ShortWords),
    Table(Box<Table<Word, ()>>),
}

impl Default for Set {
    fn default() -> Set {
        Set(Form::Packed(Packed::default()))
    }
}

impl Set {
    /// The number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(packed) => packed.len(),
            Form::Short(words) => words.len(),
            Form::Table(table) => table.len(),
        }
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this is a member.
    #[must_use]
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.0 {
            Form::Packed(packed) => packed.find(member).is_some(),
            Form::Short(words) => words.find(member).is_ok(),
            Form::Table(table) => table.get(hash_of(member), member).is_some(),
        }
    }

    /// Adds a member; whether it is new.
    pub fn add(&mut self, member: &[u8]) -> bool {
        let fits = match &mut self.0 {
            Form::Packed(packed) if packed.find(member).is_some() => return false,
            Form::Packed(packed) => packed.put(packed.end()..packed.end(), [member]),
            Form::Short(words) => match words.find(member) {
                Ok(_) => return false,
                Err(place) => words.insert(place, member),
            },
            Form::Table(table) => return add(table, member),
        };
        if !fits {
            self.0 = self.0.larger(member);
        }
        true
    }

    /// Removes a member; whether it was one.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.0 {
            Form::Packed(packed) => {
                let found = packed.find(member).map(|found| found.place);
                found.map(|place| packed.remove(place, 1)).is_some()
            }
            Form::Short(words) => words.find(member).map(|place| words.remove(place)).is_ok(),
            Form::Table(table) => table.remove(hash_of(member), member).is_some(),
        }
    }

    /// All members.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter()
    }

    /// A member by chance.
    #[must_use]
    pub fn random(&self) -> Option<&[u8]> {
        match &self.0 {
            Form::Packed(packed) => self.iter().nth(random_below(packed.len().max(1))),
            Form::Short(words) => words.get(random_below(words.len().max(1))),
            Form::Table(table) => table.random().map(|(member, ())| &**member),
        }
    }

    /// Visits some members, and returns where the next ones begin; `None` at the end. Those that
    /// are there from the first visit to the last are met. A small set is visited at once.
    pub fn scan<'a>(&'a self, position: u64, visit: &mut dyn FnMut(&'a [u8], ())) -> Option<u64> {
        match &self.0 {
            Form::Packed(_) | Form::Short(_) => {
                self.iter().for_each(|member| visit(member, ()));
                None
            }
            Form::Table(table) => table.scan(position, &mut |member, ()| visit(member, ())),
        }
    }

    /// Bytes of its allocation, if its elements have none of their own.
    pub(crate) fn packed_bytes(&self) -> Option<usize> {
        match &self.0 {
            Form::Packed(packed) => Some(packed.own_bytes()),
            Form::Short(words) => Some(words.own_bytes()),
            Form::Table(_) => None,
        }
    }

    /// Bytes of its allocations but for those of elements.
    pub(crate) fn own_bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(packed) => packed.own_bytes(),
            Form::Short(words) => words.own_bytes(),
            Form::Table(table) => size_of::<Table<Word, ()>>() + table.own_bytes(),
        }
    }
}

impl Form {
    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        match self {
            Form::Packed(packed) => Left(packed.iter().map(|element| element.words[0])),
            Form::Short(words) => Right(Left(words.iter())),
            Form::Table(table) => Right(Right(table.iter().map(|(member, ())| &**member))),
        }
    }

    /// A form for these members and another one, for which this form has no room.
    fn larger(&self, another: &[u8]) -> Form {
        let members = || self.iter().chain([another]);
        if let Form::Packed(_) = self
            && let Some(words) = ShortWords::new(members())
        {
            return Form::Short(words);
        }
        let mut table = Table::default();
        members().for_each(|member| _ = add(&mut table, member));
        Form::Table(Box::new(table))
    }
}

fn add(table: &mut Table<Word, ()>, member: &[u8]) -> bool {
    let hash = hash_of(member);
    let is_new = table.get(hash, member).is_none();
    if is_new {
        table.insert(hash, member.into(), ());
    }
    is_new
}

impl<'a> FromIterator<&'a [u8]> for Set {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(members: I) -> Set {
        let mut set = Set::default();
        for member in members {
            set.add(member);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Random changes of sets of so many different members, each of them as long as `length` says.
    fn changes_agree(members: usize, length: impl Fn(usize) -> usize) -> [bool; 3] {
        let (mut set, mut model, mut forms) = (Set::default(), BTreeSet::new(), [false; 3]);
        for _ in 0..8 * members {
            let number = random_below(members);
            let member = format!("{number:0>width$}", width = length(number)).into_bytes();
            match random_below(4) {
                0 => assert_eq!(set.remove(&member), model.remove(&member)),
                _ => assert_eq!(set.add(&member), model.insert(member.clone())),
            }
            assert_eq!(set.contains(&member), model.contains(&member));
            assert_eq!(set.len(), model.len());
            assert_eq!(set.random().is_some(), !model.is_empty());
            forms[match set.0 {
                Form::Packed(_) => 0,
                Form::Short(_) => 1,
                Form::Table(_) => 2,
            }] = true;
        }
        let mut left: Vec<_> = set.iter().map(<[u8]>::to_vec).collect();
        left.sort();
        assert!(left.iter().eq(&model));
        forms
    }

    #[test]
    fn a_set_holds_what_a_model_does_in_each_form() {
        assert_eq!(changes_agree(100, |_| 0), [true, false, false]);
        assert_eq!(changes_agree(600, |_| 0), [true, true, false]);
        assert_eq!(changes_agree(2_000, |_| 0), [true, true, true]);
        assert_eq!(changes_agree(600, |_| 30), [true, false, true]);
        let some_are_long = |number| if number % 50 == 0 { 30 } else { 0 };
        assert!(changes_agree(600, some_are_long)[2]);
    }
}
