//! Sums of what stands in the log, read from the file.

use zodium_disk::DiskFile;

use super::batch::{Batch, RecordSum};
use crate::format::{
    DATA_HEADER_BYTES, DataHeader, POINTER_BYTES, TRANSACTION_HEADER_BYTES, TransactionHeader,
};
use crate::scan::Part;
use crate::scan::{Piece, Window};

/// Bytes summed at once.
const STEP_BYTES: u64 = 1 << 20;

/// The sum of a part of the log that begins at `position`, by the lengths that stand there; `None`
/// when they reach beyond `end`.
pub(super) fn sum_at(file: &dyn DiskFile, position: u64, end: u64, part: Part) -> Option<u32> {
    match part {
        Part::Frame => {
            let mut header = [0; TRANSACTION_HEADER_BYTES];
            file.read_exact_at(&mut header, position).ok()?;
            frame_sum(file, position, end, &TransactionHeader::parse(&header))
        }
        Part::Record => {
            let mut header = [0; DATA_HEADER_BYTES];
            file.read_exact_at(&mut header, position).ok()?;
            let bytes = DataHeader::parse(&header).record_bytes();
            let stop = position.checked_add(bytes).filter(|stop| *stop <= end)?;
            sum_of(file, 0, position, stop)
        }
    }
}

/// The sum of a transaction's frame as its header would have it.
pub(super) fn frame_sum(
    file: &dyn DiskFile,
    position: u64,
    end: u64,
    header: &TransactionHeader,
) -> Option<u32> {
    let records_start = position.checked_add(header.records_offset())?;
    let records_end = position.checked_add(header.length)?;
    let stop = records_end.checked_add(POINTER_BYTES).filter(|stop| *stop <= end)?;
    let mut bytes = Vec::with_capacity(TRANSACTION_HEADER_BYTES);
    header.write(&mut bytes);
    let metadata = position + TRANSACTION_HEADER_BYTES as u64;
    let sum = sum_of(file, crc32c::crc32c(&bytes), metadata, records_start)?;
    sum_of(file, sum, records_end, stop)
}

/// Goes on with a sum over the bytes from `start` up to `end`.
pub(super) fn sum_of(file: &dyn DiskFile, mut sum: u32, start: u64, end: u64) -> Option<u32> {
    let mut buffer = vec![0; end.saturating_sub(start).min(STEP_BYTES) as usize];
    let mut position = start;
    while position < end {
        let bytes = &mut buffer[..(end - position).min(STEP_BYTES) as usize];
        file.read_exact_at(bytes, position).ok()?;
        sum = crc32c::crc32c_append(sum, bytes);
        position += bytes.len() as u64;
    }
    Some(sum)
}

/// Adds the sums of a whole transaction; of none when some of it cannot be read.
pub(super) fn add_piece(batch: &mut Batch, window: &mut Window, piece: &Piece) {
    let Some(entry) = piece.transaction.filter(|_| piece.damage.is_empty()) else { return };
    let header = window.bytes(entry.position, entry.header.records_offset() as usize);
    batch.begin(entry.position, header.unwrap_or_default());
    for record in &piece.records {
        let (start, bytes) = (record.entry.position, record.entry.header.record_bytes());
        let mut sum = RecordSum::new(start, &[]);
        each_chunk(window, start, start + bytes, |chunk| sum.add(chunk));
        batch.record(sum);
    }
    batch.end(entry.header.length);
}

/// The bytes from `start` up to `end`, piece by piece.
pub(super) fn each_chunk(window: &mut Window, start: u64, end: u64, mut visit: impl FnMut(&[u8])) {
    let mut position = start;
    while position < end {
        let count = (end - position).min(STEP_BYTES);
        visit(window.bytes(position, count as usize).unwrap_or_default());
        position += count;
    }
}
