//! Hashes: values by field.

use either::Either;

use crate::packed::Packed;
use crate::value::hash_of;
use crate::{Table, Word, random_below};

/// Values by field.
#[derive(Clone, Debug)]
pub struct Hash(Form);

#[derive(Clone, Debug)]
enum Form {
    /// Pairs of field and value, in the order in which the fields came.
    Packed(Packed<2>),
    Table(Box<Table<Word, Word>>),
}

impl Default for Hash {
    fn default() -> Hash {
        Hash(Form::Packed(Packed::default()))
    }
}

impl Hash {
    /// The number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(packed) => packed.len(),
            Form::Table(table) => table.len(),
        }
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match &self.0 {
            Form::Packed(packed) => packed.find(field).map(|found| found.words[1]),
            Form::Table(table) => table.get(hash_of(field), field).map(|value| &**value),
        }
    }

    /// Sets a field; whether it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        match &mut self.0 {
            Form::Packed(packed) => {
                let there = packed.find(field).map(|found| found.place);
                let is_new = there.is_none();
                let place = there.unwrap_or(packed.end()..packed.end());
                if !packed.put(place, [field, value]) {
                    let mut table = unpacked(packed);
                    set(&mut table, field, value);
                    self.0 = Form::Table(Box::new(table));
                }
                is_new
            }
            Form::Table(table) => set(table, field, value),
        }
    }

    /// Removes a field; whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.0 {
            Form::Packed(packed) => {
                let found = packed.find(field).map(|found| found.place);
                found.map(|place| packed.remove(place, 1)).is_some()
            }
            Form::Table(table) => table.remove(hash_of(field), field).is_some(),
        }
    }

    /// All fields with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        match &self.0 {
            Form::Packed(packed) => Either::Left(packed.iter().map(|element| element.words.into())),
            Form::Table(table) => {
                Either::Right(table.iter().map(|(field, value)| (&**field, &**value)))
            }
        }
    }

    /// A field by chance.
    #[must_use]
    pub fn random(&self) -> Option<(&[u8], &[u8])> {
        match &self.0 {
            Form::Packed(packed) => self.iter().nth(random_below(packed.len().max(1))),
            Form::Table(table) => table.random().map(|(field, value)| (&**field, &**value)),
        }
    }

    /// Visits some fields, and returns where the next ones begin; `None` at the end. Those that are
    /// there from the first visit to the last are met. A small hash is visited at once.
    pub fn scan<'a>(
        &'a self,
        position: u64,
        visit: &mut dyn FnMut(&'a [u8], &'a [u8]),
    ) -> Option<u64> {
        match &self.0 {
            Form::Packed(_) => {
                self.iter().for_each(|(field, value)| visit(field, value));
                None
            }
            Form::Table(table) => table.scan(position, &mut |field, value| visit(field, value)),
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
            Form::Table(table) => size_of::<Table<Word, Word>>() + table.own_bytes(),
        }
    }
}

fn unpacked(packed: &Packed<2>) -> Table<Word, Word> {
    let mut table = Table::default();
    for element in packed.iter() {
        let [field, value] = element.words;
        table.insert(hash_of(field), field.into(), value.into());
    }
    table
}

fn set(table: &mut Table<Word, Word>, field: &[u8], value: &[u8]) -> bool {
    let hash = hash_of(field);
    if let Some(there) = table.get_mut(hash, field) {
        *there = value.into();
        return false;
    }
    table.insert(hash, field.into(), value.into());
    true
}
