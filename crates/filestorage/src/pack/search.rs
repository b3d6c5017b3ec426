//! Finding the records that a pack has to leave out: those that are damaged, and those whose data
//! stand in one of these.
//!
//! The transactions around must be sound. Where a damaged record ends the checksums tell, or else
//! its own length, if another record or the end of its transaction follows.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use zodium_storage::PackStep;
use zodium_types::{Oid, TransactionStatus};

use super::lost::{DroppedRecord, Lost, LostRecord, Part};
use super::watch::Watch;
use crate::FileStorageError;
use crate::format::{DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES};
use crate::read::LogFile;
use crate::scan::{DataEntry, Scan, Step, TransactionEntry, WINDOW_BYTES};

/// Bytes read between two reports of progress.
const PROGRESS_BYTES: u64 = 8 << 20;

impl Lost {
    /// Reads the whole log.
    ///
    /// # Errors
    /// `Corrupt` when more is damaged than records; `RootDamaged`; those of the files.
    pub(super) fn find(log: &LogFile, watch: &Watch<'_>) -> Result<Lost, FileStorageError> {
        log.wait_indexed(log.end());
        let has_checksums = || log.checksums.as_ref().is_some_and(|sums| !sums.writing().is_void());
        let had_checksums = has_checksums();
        let mut search = Search::run(log, watch)?;
        if has_checksums() != had_checksums {
            // They turned out to be of another log, and what did not fit them is no damage.
            search = Search::run(log, watch)?;
        }
        let mut lost = search.finish()?;
        lost.find_previous(log, watch)?;
        Ok(lost)
    }

    /// Looks for the records before those lost ones of which the headers do not tell.
    fn find_previous(&mut self, log: &LogFile, watch: &Watch<'_>) -> Result<(), FileStorageError> {
        let mut wanted: FxHashMap<Oid, BTreeMap<u64, u64>> = FxHashMap::default();
        for lost in self.records().filter(|lost| lost.previous.is_none()) {
            if let Some(oid) = lost.told.oid {
                wanted.entry(oid).or_default().insert(lost.told.position, 0);
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        each_transaction(log, watch, |scan, entry| {
            if entry.status() == Some(TransactionStatus::Undone) {
                return Ok(());
            }
            self.try_each(scan, entry, |_, part| {
                if let Part::Sound(DataEntry { position, header }) = part
                    && let Some(later) = wanted.get_mut(&header.oid)
                {
                    later.range_mut(position..).for_each(|(_, before)| *before = *position);
                }
                Ok(())
            })
        })?;
        for (position, previous) in wanted.into_values().flatten() {
            self.set_previous(position, previous);
        }
        Ok(())
    }
}

fn each_transaction<'a>(
    log: &'a LogFile,
    watch: &Watch<'_>,
    mut visit: impl FnMut(&mut Scan<'a>, &TransactionEntry) -> Result<(), FileStorageError>,
) -> Result<(), FileStorageError> {
    let mut scan = log.scan_to(log.end(), WINDOW_BYTES);
    let (mut position, mut report_at) = (MAGIC_BYTES, PROGRESS_BYTES);
    while let Step::Transaction(entry) = scan.transaction(position)? {
        visit(&mut scan, &entry)?;
        position = entry.next_position();
        if position >= report_at {
            watch.report(PackStep::Checking, position, scan.end())?;
            report_at = position + PROGRESS_BYTES;
        }
    }
    Ok(())
}

struct Search<'a> {
    log: &'a LogFile,
    found: BTreeMap<u64, Found>,
}

/// A record that is lost, while the search goes on.
struct Found {
    lost: LostRecord,
    /// What its header says of the record before it, which may be wrong.
    previous: u64,
}

impl<'a> Search<'a> {
    fn run(log: &'a LogFile, watch: &Watch<'_>) -> Result<Search<'a>, FileStorageError> {
        let mut search = Search { log, found: BTreeMap::new() };
        each_transaction(log, watch, |scan, entry| search.look_through(scan, entry))?;
        Ok(search)
    }

    fn look_through(
        &mut self,
        scan: &mut Scan<'_>,
        entry: &TransactionEntry,
    ) -> Result<(), FileStorageError> {
        let mut position = entry.records_start();
        while position < entry.records_end() {
            let read = scan.record(position, entry).and_then(|record| {
                scan.verify_record(&record)?;
                Ok(record)
            });
            let (damage, record) = match read {
                Ok(record) => (self.damage_behind(scan, &record)?, Some(record)),
                Err(FileStorageError::Corrupt { what, .. }) => (Some(what), None),
                Err(error) => return Err(error),
            };
            // Its header is sound, whatever has become of its data.
            if let Some(DataEntry { header, .. }) = record {
                self.name(header.previous, header.oid);
            }
            let end = match record {
                Some(record) => position + record.header.record_bytes(),
                None => self.end_of_damaged(scan, position, entry)?,
            };
            if let Some(what) = damage {
                let oid = record.map(|record| record.header.oid);
                let tid = entry.tid();
                let told = DroppedRecord { position, oid, tid, what, is_current: false };
                self.add(told, end)?;
            }
            position = end;
        }
        Ok(())
    }

    /// Why the data of a record cannot be read that stand in another one.
    fn damage_behind(
        &self,
        scan: &mut Scan<'_>,
        record: &DataEntry,
    ) -> Result<Option<String>, FileStorageError> {
        if record.header.data_length > 0 {
            return Ok(None);
        }
        let back = match scan.back_pointer(record) {
            Ok(back) => back,
            Err(FileStorageError::Corrupt { what, .. }) => return Ok(Some(what)),
            Err(error) => return Err(error),
        };
        let is_read = self.leads_to_data(back, record.header.oid)?;
        Ok((!is_read).then(|| format!("a record whose data, at {back}, are damaged")))
    }

    /// Whether a back pointer leads to a record that was found sound, or means a deletion. Not by
    /// reading that one: where no checksum tells, a record is not read whose neighbour is damaged.
    /// It is an earlier one, so it is in the list as well when it points to a lost one itself.
    fn leads_to_data(&self, back: u64, oid: Oid) -> Result<bool, FileStorageError> {
        if back == 0 {
            return Ok(true);
        }
        let is_of_object = self.header_at(back)?.is_some_and(|header| header.oid == oid);
        Ok(is_of_object && !self.found.contains_key(&back))
    }

    fn end_of_damaged(
        &self,
        scan: &mut Scan<'_>,
        position: u64,
        entry: &TransactionEntry,
    ) -> Result<u64, FileStorageError> {
        let checksums = self.log.checksums.as_ref();
        let end = entry.records_end();
        let known = checksums.and_then(|sums| sums.end_of_record(position, end));
        if let Some(known) = known {
            return Ok(known);
        }
        let by_length = self.header_at(position)?;
        let by_length = by_length.and_then(|header| position.checked_add(header.record_bytes()));
        match by_length {
            Some(next) if next == end => Ok(next),
            Some(next) if next < end && scan.record(next, entry).is_ok() => Ok(next),
            _ => {
                let what = "a damaged record of which it is not known where it ends";
                Err(FileStorageError::corrupt(&self.log.path, position, what))
            }
        }
    }

    /// The header of a record, as it stands in the file; `None` where the log ends.
    fn header_at(&self, position: u64) -> Result<Option<DataHeader>, FileStorageError> {
        let mut bytes = [0; DATA_HEADER_BYTES];
        let bytes_end = position.checked_add(DATA_HEADER_BYTES as u64);
        if bytes_end.is_none_or(|end| end > self.log.end()) {
            return Ok(None);
        }
        let read = self.log.file.read_exact_at(&mut bytes, position);
        read.map_err(|error| FileStorageError::io(&self.log.path, "read", error))?;
        Ok(Some(DataHeader::parse(&bytes)))
    }

    fn add(&mut self, told: DroppedRecord, end: u64) -> Result<(), FileStorageError> {
        let position = told.position;
        // Not its oid: what a damaged header says alone may be about another object.
        let previous = self.header_at(position)?.filter(|header| header.tid == told.tid);
        let previous = previous.map(|header| header.previous);
        let lost = LostRecord { told, end, previous: previous.filter(|previous| *previous == 0) };
        self.found.insert(position, Found { lost, previous: previous.unwrap_or(0) });
        Ok(())
    }

    /// The record at `position`, if it is a lost one, is of this object: a later one says so.
    fn name(&mut self, position: u64, oid: Oid) {
        if let Some(found) = self.found.get_mut(&position) {
            found.lost.told.oid = Some(oid);
        }
    }

    fn finish(mut self) -> Result<Lost, FileStorageError> {
        if self.found.is_empty() {
            return Ok(Lost::default());
        }
        let log = self.log;
        for (oid, position) in log.positions.iter() {
            self.name(position, oid);
            if let Some(found) = self.found.get_mut(&position) {
                found.lost.told.is_current = true;
                if oid == Oid::ROOT {
                    let path = log.path.clone();
                    return Err(FileStorageError::RootDamaged { path, position });
                }
            }
        }
        // From the newest on: each tells of which object the one before it is.
        let positions: Vec<u64> = self.found.keys().rev().copied().collect();
        for position in positions {
            self.follow_previous(position)?;
        }
        Ok(Lost::new(self.found.into_iter().map(|(at, found)| (at, found.lost)).collect()))
    }

    /// Takes the pointer of a lost record to the one before it, if that one bears it out.
    fn follow_previous(&mut self, position: u64) -> Result<(), FileStorageError> {
        let Some(Found { lost, previous }) = self.found.get(&position) else { return Ok(()) };
        let (Some(oid), previous) = (lost.told.oid, *previous) else { return Ok(()) };
        if !(MAGIC_BYTES..position).contains(&previous) {
            return Ok(());
        }
        let is_of_object = match self.found.get(&previous) {
            Some(before) => before.lost.told.oid.is_none_or(|of| of == oid),
            None => self.header_at(previous)?.is_some_and(|before| before.oid == oid),
        };
        if is_of_object {
            self.name(previous, oid);
            if let Some(found) = self.found.get_mut(&position) {
                found.lost.previous = Some(previous);
            }
        }
        Ok(())
    }
}
