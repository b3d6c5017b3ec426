//! Sets: members.

use either::Either;

use crate::packed::Packed;
use crate::value::hash_of;
use crate::{Table, Word, random_below};

/// Members.
#[derive(Clone, Debug)]
pub struct Set(Form);

#[derive(Clone, Debug)]
enum Form {
    /// Members in the order in which they came.
    Packed(Packed<1>),
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
            Form::Table(table) => table.get(hash_of(member), member).is_some(),
        }
    }

    /// Adds a member; whether it is new.
    pub fn add(&mut self, member: &[u8]) -> bool {
        match &mut self.0 {
            Form::Packed(packed) => {
                let is_new = packed.find(member).is_none();
                if is_new && !packed.put(packed.end()..packed.end(), [member]) {
                    let mut table = Table::default();
                    for member in packed.iter().map(|element| element.words[0]).chain([member]) {
                        table.insert(hash_of(member), member.into(), ());
                    }
                    self.0 = Form::Table(Box::new(table));
                }
                is_new
            }
            Form::Table(table) => {
                let hash = hash_of(member);
                let is_new = table.get(hash, member).is_none();
                if is_new {
                    table.insert(hash, member.into(), ());
                }
                is_new
            }
        }
    }

    /// Removes a member; whether it was one.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.0 {
            Form::Packed(packed) => {
                let found = packed.find(member).map(|found| found.place);
                found.map(|place| packed.remove(place, 1)).is_some()
            }
            Form::Table(table) => table.remove(hash_of(member), member).is_some(),
        }
    }

    /// All members.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        match &self.0 {
            Form::Packed(packed) => Either::Left(packed.iter().map(|element| element.words[0])),
            Form::Table(table) => Either::Right(table.iter().map(|(member, ())| &**member)),
        }
    }

    /// A member by chance.
    #[must_use]
    pub fn random(&self) -> Option<&[u8]> {
        match &self.0 {
            Form::Packed(packed) => self.iter().nth(random_below(packed.len().max(1))),
            Form::Table(table) => table.random().map(|(member, ())| &**member),
        }
    }

    /// Visits some members, and returns where the next ones begin; `None` at the end. Those that
    /// are there from the first visit to the last are met. A small set is visited at once.
    pub fn scan<'a>(&'a self, position: u64, visit: &mut dyn FnMut(&'a [u8], ())) -> Option<u64> {
        match &self.0 {
            Form::Packed(_) => {
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
            Form::Table(_) => None,
        }
    }

    /// Bytes of its allocations but for those of elements.
    pub(crate) fn own_bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(packed) => packed.own_bytes(),
            Form::Table(table) => size_of::<Table<Word, ()>>() + table.own_bytes(),
        }
    }
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
