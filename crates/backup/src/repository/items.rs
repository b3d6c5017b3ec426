//! The bytes of transactions in chunks.
//!
//! A transaction is `T`, tid, status, the lengths of user, description and extension, and these. A
//! record is its kind, the oid, and what the kind says. Numbers are big-endian.

use zodium_storage::LogItem;
use zodium_types::{Oid, Tid, TransactionStatus};

const TRANSACTION: u8 = b'T';
/// The length of the data, and the data.
const DATA: u8 = b'R';
/// The tid of the record with the same data.
const SAME: u8 = b'S';
/// Nothing.
const DELETED: u8 = b'D';
/// The tid of a deletion that it leads back to.
const SAME_DELETED: u8 = b'E';

/// Appends an item. `is_copy`: the storage has the record that this one points back to.
pub(super) fn encode(item: LogItem<'_>, is_copy: bool, out: &mut Vec<u8>) {
    match item {
        LogItem::Transaction { tid, status, user, description, extension } => {
            out.push(TRANSACTION);
            out.extend_from_slice(&tid.0.to_be_bytes());
            out.push(status.to_byte());
            for text in [user, description, extension] {
                out.extend_from_slice(&(text.len() as u32).to_be_bytes());
            }
            [user, description, extension].iter().for_each(|text| out.extend_from_slice(text));
        }
        LogItem::Record { oid, data, data_tid } => {
            let earlier = data_tid.filter(|_| is_copy);
            let kind = match (data, earlier) {
                (Some(_), None) => DATA,
                (Some(_), Some(_)) => SAME,
                (None, None) => DELETED,
                (None, Some(_)) => SAME_DELETED,
            };
            out.push(kind);
            out.extend_from_slice(&oid.0.to_be_bytes());
            match (data, earlier) {
                (_, Some(earlier)) => out.extend_from_slice(&earlier.0.to_be_bytes()),
                (Some(data), None) => {
                    out.extend_from_slice(&(data.len() as u64).to_be_bytes());
                    out.extend_from_slice(data);
                }
                (None, None) => {}
            }
        }
        LogItem::Skipped => {}
    }
}

/// An item of a chunk.
pub(super) enum Item<'a> {
    /// A transaction, a record with data, or a deletion.
    Log(LogItem<'a>),
    /// A record with the same data as an earlier one.
    Same { oid: Oid, earlier: Tid },
}

/// Reads the items of a chunk.
pub(super) struct Items<'a> {
    bytes: &'a [u8],
}

impl<'a> Items<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Items<'a> {
        Items { bytes }
    }

    /// The next item; `None` at the end; `Err` for bytes that are none.
    pub(super) fn step(&mut self) -> Option<Result<Item<'a>, ()>> {
        if self.bytes.is_empty() { None } else { Some(self.read().ok_or(())) }
    }

    fn read(&mut self) -> Option<Item<'a>> {
        let kind = self.take(1)?[0];
        let number = self.number()?;
        if kind == TRANSACTION {
            let status = TransactionStatus::from_byte(self.take(1)?[0])?;
            let lengths = [self.length()?, self.length()?, self.length()?];
            let [user, description, extension] = lengths;
            let (user, description) = (self.take(user)?, self.take(description)?);
            let (tid, extension) = (Tid(number), self.take(extension)?);
            let item = LogItem::Transaction { tid, status, user, description, extension };
            return Some(Item::Log(item));
        }
        let (oid, record) =
            (Oid(number), |data| LogItem::Record { oid: Oid(number), data, data_tid: None });
        match kind {
            DATA => {
                let length = usize::try_from(self.number()?).ok()?;
                Some(Item::Log(record(Some(self.take(length)?))))
            }
            DELETED => Some(Item::Log(record(None))),
            SAME | SAME_DELETED => Some(Item::Same { oid, earlier: Tid(self.number()?) }),
            _ => None,
        }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    fn length(&mut self) -> Option<usize> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?) as usize)
    }
}
