//! Sizes by class, growth over time, and the largest objects, from one walk through the log.

use std::cmp::Reverse;

use zodium_storage::{LogItem, Read};
use zodium_tools::classes::Classes;
use zodium_tools::{OidMap, ToolError};
use zodium_types::{Oid, Tid};

use super::Scan;
use crate::words;

/// Most objects: each takes 8 bytes of memory, so these take 512 MiB.
const OBJECTS_MAX: u64 = 1 << 26;
/// Most classes with a name of their own, and most bytes of all names.
const CLASSES_MAX: u32 = 1 << 16;
const NAMES_BYTES_MAX: usize = 16 << 20;
/// Parts that the time of the log is divided into.
pub(crate) const PERIODS: usize = 96;
/// How many of the largest objects are kept.
const LARGEST_MAX: usize = 25;

/// An object's number in the map is its class and its size.
const SIZE_BITS: u32 = 40;
const SIZE_MAX: u64 = (1 << SIZE_BITS) - 1;
/// The class of deleted objects.
const DELETED: u64 = 1 << 23;

/// The answer.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) first: Tid,
    pub(crate) last: Tid,
    pub(crate) transactions: u64,
    pub(crate) records: u64,
    /// Current objects, and their bytes.
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    /// The largest first.
    pub(crate) classes: Vec<ClassSize>,
    /// The log in equal parts of its time.
    pub(crate) periods: Vec<Period>,
    /// The largest objects first.
    pub(crate) largest: Vec<(Oid, u64, String)>,
}

/// The current objects of one class, and all its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassSize {
    pub(crate) class: String,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    /// Bytes of all records, also of old revisions.
    pub(crate) all_bytes: u64,
    /// The largest object of the class.
    pub(crate) largest: Option<(Oid, u64)>,
}

/// A part of the time of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) start: Tid,
    pub(crate) transactions: u64,
    /// Bytes of the records.
    pub(crate) bytes: u64,
}

/// Reads the log.
pub(super) fn run(scan: &Scan, storage: &dyn Read) -> Result<Survey, ToolError> {
    let (mut classes, mut objects, mut count) = (Classes::default(), OidMap::default(), 0);
    let mut all_bytes: Vec<u64> = Vec::new();
    let (first, last) = (scan.first, scan.last);
    let mut survey = Survey { first, last, periods: periods(first, last), ..Survey::default() };
    let mut period = 0;
    scan.walk(storage, &mut |item| {
        match item {
            LogItem::Transaction { tid, .. } => {
                period = period_of(tid, first, last);
                survey.transactions += 1;
                survey.periods[period].transactions += 1;
            }
            LogItem::Record { oid, data, .. } => {
                survey.records += 1;
                let (class, size) = match data {
                    Some(data) => {
                        let class = classes.number_within(data, CLASSES_MAX, NAMES_BYTES_MAX);
                        let class = class.unwrap_or(CLASSES_MAX);
                        let size = data.len() as u64;
                        if class as usize >= all_bytes.len() {
                            all_bytes.resize(class as usize + 1, 0);
                        }
                        all_bytes[class as usize] += size;
                        survey.periods[period].bytes += size;
                        (u64::from(class), size)
                    }
                    None => (DELETED, 0),
                };
                let number = class << SIZE_BITS | size.min(SIZE_MAX);
                count += u64::from(objects.insert(oid, number).is_none());
                if count > OBJECTS_MAX {
                    return Err(ToolError::Refused(format!(
                        "there are more than {OBJECTS_MAX} objects, too many for the memory that \
                         a scan may take: use `zodium analyze` and `zodium stats`"
                    )));
                }
            }
            LogItem::Skipped => {}
        }
        Ok(())
    })?;
    survey.add_objects(&objects, &classes, &all_bytes);
    Ok(survey)
}

impl Survey {
    fn add_objects(&mut self, objects: &OidMap, classes: &Classes, all_bytes: &[u64]) {
        let name = |class: usize| match class {
            class if class < CLASSES_MAX as usize => words::name(classes.name(class as u32)),
            _ => "(other classes)".to_owned(),
        };
        let mut sizes: Vec<ClassSize> = (0..)
            .zip(all_bytes)
            .map(|(class, all_bytes)| ClassSize {
                class: name(class),
                objects: 0,
                bytes: 0,
                all_bytes: *all_bytes,
                largest: None,
            })
            .collect();
        let mut largest: Vec<(u64, Reverse<Oid>, usize)> = Vec::new();
        objects.each(|oid, number| {
            let (class, size) = ((number >> SIZE_BITS) as usize, number & SIZE_MAX);
            let Some(of_class) = sizes.get_mut(class) else { return };
            of_class.objects += 1;
            of_class.bytes += size;
            if of_class.largest.is_none_or(|(_, most)| size > most) {
                of_class.largest = Some((oid, size));
            }
            self.objects += 1;
            self.bytes += size;
            largest.push((size, Reverse(oid), class));
            // Sorted seldom, so that an object costs little.
            if largest.len() > 8 * LARGEST_MAX {
                largest.sort_unstable_by_key(|entry| Reverse(*entry));
                largest.truncate(LARGEST_MAX);
            }
        });
        largest.sort_unstable_by_key(|entry| Reverse(*entry));
        largest.truncate(LARGEST_MAX);
        let named =
            |(size, Reverse(oid), class): (u64, Reverse<Oid>, usize)| (oid, size, name(class));
        self.largest = largest.into_iter().map(named).collect();
        sizes.sort_by_key(|size| Reverse((size.bytes, size.objects, size.all_bytes)));
        self.classes = sizes;
    }
}

fn periods(first: Tid, last: Tid) -> Vec<Period> {
    let span = u128::from(last.0.saturating_sub(first.0)) + 1;
    let start = |period: usize| Tid(first.0 + (span * period as u128 / PERIODS as u128) as u64);
    (0..PERIODS).map(|period| Period { start: start(period), ..Period::default() }).collect()
}

fn period_of(tid: Tid, first: Tid, last: Tid) -> usize {
    let span = u128::from(last.0.saturating_sub(first.0)) + 1;
    let since = u128::from(tid.0.saturating_sub(first.0));
    ((since * PERIODS as u128 / span) as usize).min(PERIODS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tid_has_one_period() {
        let (first, last) = (Tid(1000), Tid(1000 + 10 * PERIODS as u64 - 1));
        let periods = periods(first, last);
        for tid in first.0..=last.0 {
            let period = period_of(Tid(tid), first, last);
            assert!(periods[period].start <= Tid(tid));
            assert!(periods.get(period + 1).is_none_or(|next| Tid(tid) < next.start));
        }
        assert_eq!(period_of(first, first, first), 0);
        assert_eq!(period_of(Tid::MAX, Tid::ZERO, Tid::MAX), PERIODS - 1);
    }
}
