//! Searches a transaction by its tid: from the nearest entry of the sparse index along the log.
//!
//! If no entry is near, the search reads current records. The index has their positions, and
//! their headers name their transactions. So a search in a newly opened file is as fast, unless all
//! transactions write the same few objects. Then the first walk is long.

use zodium_types::{Oid, Tid};

use super::log::LogFile;
use super::sparse_tid_index::{INTERVAL, Place, Stretch};
use crate::FileStorageError;
use crate::format::MAGIC_BYTES;
use crate::reading::Reading;
use crate::scan::{Scan, Step, TransactionEntry};

/// A walk over at most this many bytes needs no look at the index.
const NEAR_BYTES: u64 = 256 << 10;
/// Parts into which the stretch between two entries is divided for a look at the index.
const PARTS: u64 = 1024;
/// Bytes read at once while walking.
const WINDOW_BYTES: usize = 16 << 10;

impl LogFile {
    /// Position of the first transaction at or after `wanted`; the end of the log when there is
    /// none. May wait for the device.
    pub(crate) fn first_at_or_after(&self, wanted: Tid) -> Result<u64, FileStorageError> {
        let end = self.end();
        let scan = self.scan_to(end, WINDOW_BYTES);
        let mut walk = Walk { log: self, scan, passed: Vec::new() };
        let Step::Transaction(first) = walk.scan.transaction(MAGIC_BYTES)? else {
            return Ok(MAGIC_BYTES);
        };
        if wanted <= first.tid() {
            return Ok(MAGIC_BYTES);
        }
        let Some(last) = walk.scan.transaction_before(end)? else { return Ok(MAGIC_BYTES) };
        if last.tid() < wanted {
            return Ok(end);
        }
        let mut stretch = Stretch { wanted, low: place_of(&first), high: place_of(&last) };
        self.tid_index.narrow(&mut stretch);
        let found = walk.find(&mut stretch);
        self.tid_index.add(walk.passed);
        found
    }
}

/// A walk to a transaction, and the entries that it adds.
struct Walk<'a> {
    log: &'a LogFile,
    scan: Scan<'a>,
    passed: Vec<Place>,
}

impl Walk<'_> {
    fn find(&mut self, stretch: &mut Stretch) -> Result<u64, FileStorageError> {
        if stretch.bytes() > NEAR_BYTES {
            self.narrow_by_records(stretch)?;
        }
        if stretch.is_nearer_to_high() { self.back(stretch) } else { self.forth(stretch) }
    }

    /// Bisects the current records within the stretch.
    fn narrow_by_records(&mut self, stretch: &mut Stretch) -> Result<(), FileStorageError> {
        let mut records = self.records_within(stretch);
        let (mut low, mut high) = (0, records.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let (position, oid) = records[middle];
            let place = match self.place_by_record(position, oid) {
                Ok(place) => place,
                Err(FileStorageError::Corrupt { .. }) => {
                    // A damaged record gives no direction. If it is in the way, the walk will find
                    // that.
                    records.remove(middle);
                    high -= 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.passed.push(place);
            stretch.take(place);
            if place.tid < stretch.wanted { low = middle + 1 } else { high = middle }
        }
        Ok(())
    }

    /// The transaction of the record of `oid` at `position`.
    fn place_by_record(&mut self, position: u64, oid: Oid) -> Result<Place, FileStorageError> {
        if let Some(stored) = self.log.read_stored(position, oid, Reading::Blocking)?
            && let Step::Transaction(entry) = self.scan.transaction(stored.header.transaction)?
            && entry.tid() == stored.header.tid
        {
            return Ok(place_of(&entry));
        }
        let what = "a record that does not stand in the transaction it names";
        Err(self.log.damaged(position, what))
    }

    /// The first current record of each part of the stretch, ascending.
    fn records_within(&self, stretch: &Stretch) -> Vec<(u64, Oid)> {
        let (start, end) = (stretch.low.position, stretch.high.position);
        let part_bytes = stretch.bytes().div_ceil(PARTS);
        let mut parts = vec![None; PARTS as usize];
        for (oid, position) in self.log.positions.iter() {
            if (start..end).contains(&position) {
                let part = &mut parts[((position - start) / part_bytes) as usize];
                *part = Some(part.map_or((position, oid), |first| (position, oid).min(first)));
            }
        }
        parts.into_iter().flatten().collect()
    }

    fn back(&mut self, stretch: &Stretch) -> Result<u64, FileStorageError> {
        let mut position = stretch.high.position;
        let mut count: u64 = 0;
        while let Some(entry) = self.scan.transaction_before(position)? {
            if entry.tid() < stretch.wanted {
                break;
            }
            position = entry.position;
            self.pass(&mut count, &entry);
        }
        Ok(position)
    }

    fn forth(&mut self, stretch: &Stretch) -> Result<u64, FileStorageError> {
        let mut position = stretch.low.position;
        let mut count: u64 = 0;
        while let Step::Transaction(entry) = self.scan.transaction(position)? {
            if entry.tid() >= stretch.wanted {
                break;
            }
            position = entry.next_position();
            self.pass(&mut count, &entry);
        }
        Ok(position)
    }

    fn pass(&mut self, count: &mut u64, entry: &TransactionEntry) {
        *count += 1;
        if count.is_multiple_of(INTERVAL) {
            self.passed.push(place_of(entry));
        }
    }
}

fn place_of(entry: &TransactionEntry) -> Place {
    Place { tid: entry.tid(), position: entry.position }
}
