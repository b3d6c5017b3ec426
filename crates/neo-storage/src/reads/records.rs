//! Current records in memory: a load of one does not ask the database.
//!
//! Key decision: only records are kept that nothing but a commit here replaces, and a commit takes
//! its objects out. So an undo is not kept, since a pack may move its data, nor is a deletion. All
//! is forgotten with a cell that is taken away, or that got its data from another node. In a backup
//! cluster nothing is kept: there, records come without commits.

use std::fmt;

use quick_cache::Weighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};
use rustc_hash::FxBuildHasher;
use zodium_types::{Oid, Tid};

use crate::database::Record;

/// Memory for records of a node whose driver does not say otherwise.
pub const RECORDS_BYTES_MAX: usize = 64 << 20;

/// What an entry takes beside its data.
const ENTRY_BYTES: u64 = 160;
/// Bytes of a record that the size of the table is estimated by.
const RECORD_BYTES: usize = 1 << 10;
/// A record may take this part of the memory.
const SHARE_MAX: usize = 64;

/// Records that are current, by object.
#[derive(Default)]
pub(crate) struct Records {
    /// `None`: nothing is kept.
    kept: Option<Cache<Oid, Record, EntryBytes, FxBuildHasher>>,
    record_bytes_max: usize,
    /// Counts what makes a record that was read before doubtful.
    changes: u64,
}

/// The state of the database that a read will see, or a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since(u64);

/// Weighs entries.
#[derive(Clone)]
struct EntryBytes;

impl Weighter<Oid, Record> for EntryBytes {
    fn weight(&self, _: &Oid, record: &Record) -> u64 {
        let bytes = record.data.as_ref().map_or(0, |data| data.bytes.len());
        bytes as u64 + ENTRY_BYTES
    }
}

impl Records {
    /// Keeps so many bytes at most; with 0 none.
    pub(crate) fn new(bytes: usize) -> Records {
        let cache = || {
            let (records, lifecycle) = (bytes / RECORD_BYTES, DefaultLifecycle::default());
            Cache::with(records.max(1), bytes as u64, EntryBytes, FxBuildHasher, lifecycle)
        };
        let kept = (bytes > 0).then(cache);
        Records { kept, record_bytes_max: bytes / SHARE_MAX, changes: 0 }
    }

    /// For a read that begins now.
    pub(crate) fn since(&self) -> Since {
        Since(self.changes)
    }

    /// The record that a load of an object finds, if it is here: the one of the transaction `at`,
    /// or the last one before `before`, or the last one.
    pub(crate) fn find(&self, oid: Oid, at: Option<Tid>, before: Option<Tid>) -> Option<&Record> {
        let record = self.kept.as_ref()?.get(&oid)?;
        let is_asked_for = match at {
            Some(at) => record.serial == at,
            None => before.is_none_or(|before| record.serial < before),
        };
        is_asked_for.then_some(record)
    }

    /// Keeps what a read found, if it is current. `since` is from before the read.
    pub(crate) fn keep(&mut self, oid: Oid, record: Record, since: Since) {
        let Some(kept) = &mut self.kept else { return };
        let Record { next: None, data: Some(data), data_serial: None, .. } = &record else {
            return;
        };
        if since.0 == self.changes && data.bytes.len() <= self.record_bytes_max {
            kept.insert(oid, record);
        }
    }

    /// Takes out what a commit has changed.
    pub(crate) fn remove(&mut self, oids: impl Iterator<Item = Oid>) {
        self.changes += 1;
        if let Some(kept) = &mut self.kept {
            oids.for_each(|oid| drop(kept.remove(&oid)));
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.changes += 1;
        if let Some(kept) = &mut self.kept {
            kept.clear();
        }
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.kept.as_ref().map_or(0, Cache::len);
        f.debug_struct("Records").field("kept", &kept).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use zodium_neo::Checksum;

    use super::*;
    use crate::database::Data;

    fn record(serial: u64, length: usize) -> Record {
        let data = Data { compression: 0, checksum: Checksum::ZERO, bytes: vec![7; length] };
        Record { serial: Tid(serial), next: None, data: Some(data), data_serial: None }
    }

    fn with(record: Record) -> Records {
        let mut records = Records::new(1 << 20);
        records.keep(Oid(1), record, records.since());
        records
    }

    #[test]
    fn a_current_record_is_found_by_each_load_that_asks_for_it() {
        let records = with(record(10, 100));
        let find = |at: Option<u64>, before: Option<u64>| {
            let found = records.find(Oid(1), at.map(Tid), before.map(Tid));
            found.map(|record| record.serial.0)
        };
        assert_eq!((find(None, None), find(Some(10), None)), (Some(10), Some(10)));
        assert_eq!((find(None, Some(11)), find(None, Some(u64::MAX))), (Some(10), Some(10)));
        assert_eq!((find(None, Some(10)), find(Some(9), None)), (None, None));
        assert_eq!(records.find(Oid(2), None, None), None);
    }

    #[test]
    fn what_is_not_current_or_may_go_otherwise_is_not_kept() {
        let old = Record { next: Some(Tid(11)), ..record(10, 100) };
        let deletion = Record { data: None, ..record(10, 100) };
        let undo = Record { data_serial: Some(Tid(5)), ..record(10, 100) };
        for one in [old, deletion, undo, record(10, 1 << 15)] {
            assert_eq!(with(one.clone()).find(Oid(1), None, None), None, "{one:?}");
        }
        assert!(Records::new(0).kept.is_none());
    }

    #[test]
    fn a_commit_takes_its_objects_out_and_earlier_reads_stay_out() {
        let mut records = with(record(10, 100));
        let before = records.since();
        records.keep(Oid(3), record(10, 100), before);
        records.remove([Oid(1), Oid(2)].into_iter());
        assert_eq!(records.find(Oid(1), None, None), None);
        assert!(records.find(Oid(3), None, None).is_some());
        records.keep(Oid(1), record(10, 100), before);
        assert_eq!(records.find(Oid(1), None, None), None, "it was read before the commit");
        records.keep(Oid(1), record(20, 100), records.since());
        assert!(records.find(Oid(1), None, None).is_some());
        let before = records.since();
        records.clear();
        assert!(records.find(Oid(1), None, None).is_none() && records.since() != before);
    }

    #[test]
    fn memory_is_bounded() {
        let mut records = Records::new(1 << 20);
        for oid in 0..10_000 {
            records.keep(Oid(oid), record(10, 1000), records.since());
        }
        let kept = (0..10_000).filter(|oid| records.find(Oid(*oid), None, None).is_some()).count();
        assert!((500..=1100).contains(&kept), "{kept}");
    }
}
