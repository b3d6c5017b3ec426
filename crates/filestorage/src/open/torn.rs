//! Detects transactions that look whole but were torn by a power cut.
//!
//! The log is synced once for a batch. If the power fails before the sync, any sectors of the batch
//! may be missing. A missing sector within a record's data leaves the structure intact, but it
//! leaves a trace: zeros ([`lost_sectors`](crate::format::LostSectors)).
//!
//! A batch whose own data have such a trace, which is rare, is announced: its checksums are made
//! durable before its bytes are written. Behind the bytes known to be durable, two kinds of
//! transaction are torn: a broken one, and one with a trace that does not match its announcement.
//! Each is cut with all that follows: the rest of its batch, which was not acknowledged.
//!
//! This holds only if our last session ended with the system, its checksums had no gaps, and no
//! other program has written since. To record that, the lock file names the session as one without
//! gaps for as long as this is true, and the checksums name the start of the system
//! ([`Opened::may_lack_bytes`]). A copy may take the file's place without leaving a trace there: it
//! has transactions so much later that they are of no batch ([`BATCH_NANOS_MAX`]).

use zodium_disk::DiskFile;

use crate::FileStorageError;
use crate::checksums::{Entry, Opened};
use crate::format::LostSectors;
use crate::scan::{Scan, Step, TransactionEntry};

/// Bytes looked through at once.
const WINDOW_BYTES: u64 = 64 << 10;
/// The transactions of a batch get their tids within a much shorter time, in nanoseconds.
const BATCH_NANOS_MAX: u64 = 60_000_000_000;

/// Our last session, if it ended with the system and no other program has written to the file
/// since.
pub(crate) struct TornTransactionDetector<'a> {
    opened: &'a Opened,
}

impl<'a> TornTransactionDetector<'a> {
    /// `None` when that is not certain.
    pub(crate) fn find(opened: Option<&'a Opened>) -> Option<TornTransactionDetector<'a>> {
        let opened = opened.filter(|opened| opened.may_lack_bytes())?;
        Some(TornTransactionDetector { opened })
    }

    /// Whether the bytes at a position may be torn, because nothing shows that they were durable.
    pub(crate) fn may_be_torn(&self, position: u64) -> bool {
        position >= self.opened.side.end()
    }

    /// Whether a transaction that looks whole is torn.
    pub(crate) fn is_torn(
        &self,
        file: &dyn DiskFile,
        scan: &mut Scan<'_>,
        transaction: &TransactionEntry,
    ) -> Result<bool, FileStorageError> {
        if !self.may_be_torn(transaction.position) || !has_trace(file, scan, transaction)? {
            return Ok(false);
        }
        let frame = Entry::frame(transaction.position, scan.frame_sum(transaction)?);
        let mut as_announced = self.is_announced(&frame);
        scan.try_each_record(transaction, |scan, record| {
            let found = Entry::record(record.position, scan.record_sum(record)?);
            as_announced &= self.is_announced(&found);
            Ok(())
        })?;
        Ok(!as_announced)
    }

    /// Whether a transaction follows that is too much later to be of the same batch.
    pub(crate) fn is_followed_by_a_later_batch(
        &self,
        scan: &mut Scan<'_>,
        transaction: &TransactionEntry,
    ) -> bool {
        let time = |entry: &TransactionEntry| entry.tid().to_unix_nanos();
        let latest = time(transaction).saturating_add(BATCH_NANOS_MAX);
        let mut position = transaction.next_position();
        while let Ok(Step::Transaction(next)) = scan.transaction(position) {
            if time(&next) > latest {
                return true;
            }
            position = next.next_position();
        }
        false
    }

    fn is_announced(&self, found: &Entry) -> bool {
        let announced = self.opened.announced();
        let place = announced.binary_search_by_key(&found.position, |entry| entry.position);
        let entry = place.ok().and_then(|number| announced.get(number));
        entry.is_some_and(|entry| (entry.sum, entry.part) == (found.sum, found.part))
    }
}

fn has_trace(
    file: &dyn DiskFile,
    scan: &Scan<'_>,
    transaction: &TransactionEntry,
) -> Result<bool, FileStorageError> {
    let mut sectors = LostSectors::default();
    sectors.begin(transaction.position);
    let (mut position, end) = (transaction.position, transaction.next_position());
    let mut window = vec![0; WINDOW_BYTES.min(end - position) as usize];
    while position < end {
        let count = WINDOW_BYTES.min(end - position);
        let bytes = &mut window[..count as usize];
        let read = file.read_exact_at(bytes, position);
        read.map_err(|error| FileStorageError::io(scan.path(), "read", error))?;
        sectors.add(bytes);
        position += count;
    }
    sectors.end();
    Ok(sectors.seen())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Crafted;

    #[test]
    fn a_trace_is_found_in_every_sector_of_a_transaction() {
        let mut data = Crafted::new();
        data.add(1, &[(1, b"before")]);
        let length = 2 * WINDOW_BYTES + 1_000;
        let start = data.add(2, &[(2, &vec![b'x'; length as usize])]);
        let end = data.end();
        data.append(&[0; 1_000]);
        let has_trace = |data: &Crafted| {
            let file = data.file();
            let mut scan = Scan::new(Crafted::path(), data.file(), data.end());
            let Ok(Step::Transaction(entry)) = scan.transaction(start) else { panic!("it is one") };
            has_trace(file.as_ref(), &scan, &entry).unwrap()
        };
        assert!(!has_trace(&data), "zeros behind it are none of its own");
        let data_start = start + 23 + 42;
        let window = start + WINDOW_BYTES;
        for sector in
            [data_start.next_multiple_of(512), window / 512 * 512, (end - 600) / 512 * 512]
        {
            let mut lost = data.clone();
            lost.zero(sector, sector + 512);
            assert!(has_trace(&lost), "{sector}");
            // Only the last bytes of a sector tell.
            let mut other = data.clone();
            other.zero(sector, sector + 511);
            assert!(!has_trace(&other), "{sector}");
        }
    }
}
