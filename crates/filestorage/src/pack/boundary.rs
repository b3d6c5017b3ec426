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
