//! Where in the log a pack ends, and where one has ended.

use std::sync::Arc;

use zodium_blobs::PackedBlobs;
use zodium_types::{Tid, TransactionStatus};

use super::lost::Lost;
use crate::FileStorageError;
use crate::format::MAGIC_BYTES;
use crate::read::{LogFile, step_scan};
use crate::scan::{Scan, Step};

/// The first transaction after the pack time. `None`: nothing before it can be freed. Where records
/// are lost a pack drops at least these: then everything is after the pack time.
pub(super) fn pack_end(
    log: &LogFile,
    pack_tid: Tid,
    lost: &Lost,
) -> Result<Option<u64>, FileStorageError> {
    let pack_end = log.first_at_or_after(pack_tid.next())?;
    if pack_end != MAGIC_BYTES && !is_packed(log, pack_end)? {
        return Ok(Some(pack_end));
    }
    Ok((!lost.is_empty()).then_some(MAGIC_BYTES))
}

/// Whether a pack to a later time was done before, which has removed what one to this time would
/// have to keep.
fn is_packed(log: &LogFile, pack_end: u64) -> Result<bool, FileStorageError> {
    let mut scan = step_scan(log);
    let mut is_packed = |position| -> Result<Option<u64>, FileStorageError> {
        let Step::Transaction(entry) = scan.transaction(position)? else { return Ok(None) };
        let packed = entry.status() == Some(TransactionStatus::Packed);
        Ok(packed.then_some(entry.next_position()))
    };
    if is_packed(pack_end)?.is_none() {
        return Ok(false);
    }
    let mut position = MAGIC_BYTES;
    while position < pack_end {
        match is_packed(position)? {
            Some(next) => position = next,
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Whether a pack made this file: no other has the end of what was packed in the same place.
///
/// The place is a guess, so what is found there proves no damage.
pub(super) fn is_made_by(log: &LogFile, packed: &PackedBlobs) -> bool {
    let mut scan = Scan::new(&log.path, Arc::clone(&log.file), log.end());
    let is_later = match scan.transaction(packed.boundary) {
        Ok(Step::Transaction(entry)) => entry.tid() > packed.last_tid,
        Ok(Step::End) => true,
        Ok(Step::Unfinished) | Err(_) => false,
    };
    let is_packed = match scan.transaction_before(packed.boundary) {
        Ok(Some(entry)) => {
            entry.tid() <= packed.last_tid && entry.status() == Some(TransactionStatus::Packed)
        }
        Ok(None) => packed.boundary == MAGIC_BYTES,
        Err(_) => false,
    };
    is_later && is_packed
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use zodium_disk::MemoryDisk;
    use zodium_storage::NewTransaction;

    use super::*;
    use crate::FileStorage;
    use crate::testing::{commit, open, stores};

    /// A storage with transactions of the tids 1, 2 and so on, of which the first are packed.
    fn written(packed: u64, others: u64) -> (FileStorage, Vec<u64>) {
        let storage = open(MemoryDisk::new());
        let mut starts = vec![MAGIC_BYTES];
        for tid in 1..=packed + others {
            let status = match tid <= packed {
                true => TransactionStatus::Packed,
                false => TransactionStatus::Normal,
            };
            commit(&storage, tid, NewTransaction { status, ..stores("", &["data"]) });
            starts.push(storage.size());
        }
        (storage, starts)
    }

    fn is_made(storage: &FileStorage, last_tid: u64, boundary: u64) -> bool {
        let packed = PackedBlobs { last_tid: Tid(last_tid), boundary, ..PackedBlobs::default() };
        is_made_by(&storage.reader().log(), &packed)
    }

    #[test]
    fn a_pack_has_made_the_file_where_what_it_packed_ends_in_its_place() {
        let (storage, starts) = written(2, 2);
        assert!(is_made(&storage, 2, starts[2]));
        // Of the one before the boundary, only the latest tid up to the pack time is known.
        assert!(!is_made(&storage, 3, starts[2]), "the next one is not later");
        assert!(!is_made(&storage, 1, starts[2]), "the one before is later");
        for boundary in [starts[1], starts[3], starts[4], starts[2] - 1, starts[2] + 1] {
            assert!(!is_made(&storage, 2, boundary), "{boundary}");
        }
        assert!(!is_made(&storage, 3, starts[3]), "the one before is not packed");
        assert!(!is_made(&storage, 2, starts[4] + 100));
    }

    #[test]
    fn a_pack_may_have_left_nothing_behind_its_end_or_before_it() {
        let (storage, starts) = written(2, 0);
        assert!(is_made(&storage, 2, starts[2]) && is_made(&storage, 7, starts[2]));
        let (storage, _) = written(0, 2);
        assert!(is_made(&storage, 0, MAGIC_BYTES));
        assert!(!is_made(&storage, 1, MAGIC_BYTES));
        let (empty, _) = written(0, 0);
        assert!(is_made(&empty, 7, MAGIC_BYTES));
    }

    #[test]
    fn a_pack_ends_before_the_first_later_transaction_unless_all_before_it_are_packed() {
        let end = |storage: &FileStorage, tid| {
            pack_end(&storage.reader().log(), Tid(tid), &Lost::default()).unwrap()
        };
        let (storage, starts) = written(2, 2);
        // Up to the second one a pack was done.
        let expected =
            [None, None, Some(starts[2]), Some(starts[3]), Some(starts[4]), Some(starts[4])];
        for (tid, expected) in (0..).zip(expected) {
            assert_eq!(end(&storage, tid), expected, "up to {tid}");
        }
        let (storage, starts) = written(0, 2);
        let expected = [None, Some(starts[1]), Some(starts[2])];
        for (tid, expected) in (0..).zip(expected) {
            assert_eq!(end(&storage, tid), expected, "up to {tid}");
        }
    }
}
