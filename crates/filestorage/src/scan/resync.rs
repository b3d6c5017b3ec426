//! Finds the next whole transaction after damage.
//!
//! A transaction contains its length twice, and each of its records the transaction's position and
//! tid. So data that contain a transaction, such as a stored copy of a data file, are not taken for
//! one: they are at another position.

use super::entries::TransactionEntry;
use super::window::{LOOK_BYTES, WALK_BYTES, Window};
use crate::format::{
    DATA_HEADER_BYTES, DataHeader, POINTER_BYTES, STATUS_OFFSET, TRANSACTION_HEADER_BYTES,
    TransactionHeader, u64_at,
};
use zodium_types::TransactionStatus;

/// Transactions without records that are looked past for one that has some.
const EMPTY_MAX: usize = 64;

/// Looks for transactions.
pub(crate) struct Resync {
    sweep: Window,
    look: Window,
}

impl Resync {
    pub(crate) fn new(window: &Window) -> Resync {
        Resync { sweep: window.another(WALK_BYTES), look: window.another(LOOK_BYTES) }
    }

    /// Where the first whole transaction at or after `from` begins.
    pub(crate) fn find(&mut self, from: u64) -> Option<u64> {
        let mut position = from;
        loop {
            let bytes = self.sweep.some_bytes(position, WALK_BYTES);
            let starts = bytes.len().checked_sub(TRANSACTION_HEADER_BYTES)? + 1;
            let room = self.look.end() - position;
            for at in 0..starts {
                if may_begin(&bytes[at..], room - at as u64)
                    && begins(&mut self.look, position + at as u64)
                {
                    return Some(position + at as u64);
                }
            }
            position += starts as u64;
        }
    }
}

/// The first record of a transaction at or after `from`: one that names the transaction and fits.
pub(crate) fn next_record(window: &mut Window, entry: &TransactionEntry, from: u64) -> Option<u64> {
    let mut position = from;
    loop {
        let room = entry.records_end().checked_sub(position)?;
        let bytes = window.some_bytes(position, room.min(WALK_BYTES as u64) as usize);
        let starts = bytes.len().checked_sub(DATA_HEADER_BYTES)? + 1;
        for at in 0..starts {
            let bytes = &bytes[at..];
            if u64_at(bytes, DataHeader::TID_OFFSET) == entry.tid().0
                && u64_at(bytes, DataHeader::TRANSACTION_OFFSET) == entry.position
                && let Some(header) = bytes.first_chunk().map(DataHeader::parse)
                && header.version_length == 0
                && header.record_bytes() <= room - at as u64
            {
                return Some(position + at as u64);
            }
        }
        position += starts as u64;
    }
}

/// Whether these bytes can be the header of a transaction with `room` bytes to the end.
fn may_begin(bytes: &[u8], room: u64) -> bool {
    let length = u64_at(bytes, TransactionHeader::LENGTH_OFFSET as usize);
    length >= TRANSACTION_HEADER_BYTES as u64
        && length <= room.saturating_sub(POINTER_BYTES)
        && bytes.get(STATUS_OFFSET).is_some_and(|s| TransactionStatus::from_byte(*s).is_some())
}

/// Whether a whole transaction stands there. One without records is believed when others follow
/// that have some, or the end of the file.
fn begins(window: &mut Window, mut position: u64) -> bool {
    for _ in 0..EMPTY_MAX {
        let Some(entry) = framed(window, position) else { return false };
        let mut record = entry.records_start();
        if record < entry.records_end() {
            while record < entry.records_end() {
                let Some(length) = record_bytes(window, &entry, record) else { return false };
                record = record.saturating_add(length);
            }
            return record == entry.records_end();
        }
        position = entry.next_position();
        if position == window.end() {
            return true;
        }
    }
    false
}

fn framed(window: &mut Window, position: u64) -> Option<TransactionEntry> {
    let header = TransactionHeader::parse(&window.chunk(position)?);
    let entry = TransactionEntry { position, header };
    let end = position.checked_add(header.length)?;
    let is_one = header.records_offset() <= header.length
        && entry.status().is_some()
        && window.number(end) == Some(header.length);
    is_one.then_some(entry)
}

/// The length of a record that is one of this transaction's.
fn record_bytes(window: &mut Window, entry: &TransactionEntry, position: u64) -> Option<u64> {
    let header = DataHeader::parse(&window.chunk(position)?);
    let is_its = header.transaction == entry.position && header.tid == entry.tid();
    (is_its && header.version_length == 0).then(|| header.record_bytes())
}

#[cfg(test)]
mod tests;
