//! The transactions in a `.deltafs` file, which is a range of a data file.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use zodium_storage::LogItem;
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::BackupError;
use crate::files::BUFFER_BYTES;

/// Tid, length, status, lengths of user, description and extension.
const TRANSACTION_HEAD_BYTES: usize = 23;
/// Oid, tid, positions of the revision before and of the transaction, version length, data length.
const RECORD_HEAD_BYTES: usize = 42;
/// The position of another record, in place of data; and the length behind a transaction.
const POSITION_BYTES: u64 = 8;

/// Shows each transaction of the file, and each of its records after it. A record that points back
/// to an earlier one has no data here: they are in the data file.
///
/// # Errors
/// `Damaged` for a file that does not consist of whole transactions, and what `visit` gives.
pub fn read_delta<E: From<BackupError>>(
    path: &Path,
    visit: &mut dyn FnMut(LogItem<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let file = File::open(path).map_err(BackupError::io("open it", path))?;
    let left = file.metadata().map_err(BackupError::io("read it", path))?.len();
    let input = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut delta = Delta { path, input, position: 0, left };
    while delta.left > 0 {
        delta.transaction(visit)?;
    }
    Ok(())
}

struct Delta<'p> {
    path: &'p Path,
    input: BufReader<File>,
    position: u64,
    left: u64,
}

impl Delta<'_> {
    fn transaction<E: From<BackupError>>(
        &mut self,
        visit: &mut dyn FnMut(LogItem<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let begin = self.position;
        let head = self.bytes(TRANSACTION_HEAD_BYTES as u64)?;
        let [user, description, extension] = [17, 19, 21].map(|at| u64::from(short(&head, at)));
        let length = long(&head, 8);
        let status = TransactionStatus::from_byte(head[16]);
        let (Some(status), true) = (status, length <= self.left + TRANSACTION_HEAD_BYTES as u64)
        else {
            return Err(self.damaged(begin, "no transaction begins there").into());
        };
        let [user, description, extension] =
            [self.bytes(user)?, self.bytes(description)?, self.bytes(extension)?];
        // As everywhere, the records of an undone transaction do not count.
        let counts = status != TransactionStatus::Undone;
        if counts {
            visit(LogItem::Transaction {
                tid: Tid(long(&head, 0)),
                status,
                user: &user,
                description: &description,
                extension: &extension,
            })?;
        }
        while self.position < begin + length {
            let start = self.position;
            let head = self.bytes(RECORD_HEAD_BYTES as u64)?;
            let (oid, bytes) = (Oid(long(&head, 0)), long(&head, 34));
            if bytes > (begin + length).saturating_sub(self.position) {
                return Err(self.damaged(start, "a record is longer than its transaction").into());
            }
            let data = match bytes {
                0 => self.bytes(POSITION_BYTES).map(|_| None)?,
                bytes => Some(self.bytes(bytes)?),
            };
            if counts {
                visit(LogItem::Record { oid, data: data.as_deref(), data_tid: None })?;
            }
        }
        let ends_there = self.position == begin + length;
        if !ends_there || long(&self.bytes(POSITION_BYTES)?, 0) != length {
            return Err(self.damaged(begin, "the transaction has another length").into());
        }
        Ok(())
    }

    fn bytes(&mut self, count: u64) -> Result<Vec<u8>, BackupError> {
        if count > self.left {
            return Err(self.damaged(self.position, "the file ends within a transaction"));
        }
        let mut bytes = vec![0; count as usize];
        self.input.read_exact(&mut bytes).map_err(BackupError::io("read it", self.path))?;
        (self.position, self.left) = (self.position + count, self.left - count);
        Ok(bytes)
    }

    fn damaged(&self, position: u64, what: &str) -> BackupError {
        BackupError::damaged(self.path, format!("at {position}: {what}"))
    }
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
