//! The current objects by class: how many there are, and how many bytes they have.

use std::cmp::Reverse;

use zodium_storage::{LogItem, Read};
use zodium_types::{Oid, Tid};

use crate::classes::Classes;
use crate::oid_map::OidMap;
use crate::walk::walk;
use crate::{TidRange, ToolError};

/// An object's number in the map is its class and its size. The largest class means deleted.
const SIZE_BITS: u32 = 40;
const SIZE_MAX: u64 = (1 << SIZE_BITS) - 1;
const DELETED: u64 = 1 << 23;

/// The current objects as of one transaction.
pub struct Stats {
    classes: Classes,
    objects: OidMap,
}

/// The objects of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassTotal<'a> {
    /// The class.
    pub class: &'a str,
    /// Objects.
    pub objects: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

impl Stats {
    /// Reads the log up to transaction `last`.
    pub fn of(storage: &dyn Read, last: Tid) -> Result<Stats, ToolError> {
        let (mut classes, mut objects) = (Classes::default(), OidMap::default());
        walk(storage, TidRange::until(last), &mut |item| {
            if let LogItem::Record { oid, data, .. } = item {
                let (class, size) = match data {
                    Some(data) => (u64::from(classes.number(data)), data.len() as u64),
                    None => (DELETED, 0),
                };
                objects.insert(oid, class << SIZE_BITS | size.min(SIZE_MAX));
            }
            Ok(())
        })?;
        Ok(Stats { classes, objects })
    }

    /// Shows each object, with the bytes of its data and its class, in the order of oids.
    pub fn each(&self, mut visit: impl FnMut(Oid, u64, &str)) {
        self.each_number(|oid, size, class| visit(oid, size, self.classes.name(class)));
    }

    fn each_number(&self, mut visit: impl FnMut(Oid, u64, u32)) {
        self.objects.each(|oid, number| {
            let class = number >> SIZE_BITS;
            if class != DELETED {
                visit(oid, number & SIZE_MAX, class as u32);
            }
        });
    }

    /// The classes by bytes and then by objects, the largest first; equal ones in the order of
    /// their first oids.
    pub fn totals(&self) -> Vec<ClassTotal<'_>> {
        let mut places: Vec<Option<usize>> = Vec::new();
        let mut totals: Vec<ClassTotal<'_>> = Vec::new();
        self.each_number(|_, size, class| {
            let number = class as usize;
            if number >= places.len() {
                places.resize(number + 1, None);
            }
            let place = *places[number].get_or_insert_with(|| {
                let class = self.classes.name(class);
                totals.push(ClassTotal { class, objects: 0, bytes: 0 });
                totals.len() - 1
            });
            totals[place].objects += 1;
            totals[place].bytes += size;
        });
        totals.sort_by_key(|total| Reverse((total.bytes, total.objects)));
        totals
    }
}
