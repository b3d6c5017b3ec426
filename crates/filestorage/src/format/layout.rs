//! The bytes of `Data.fs`: headers of transactions and data records, all integers big-endian.
//!
//! ```text
//! file        := magic transaction*
//! transaction := tid:8 length:8 status:1 user_length:2 description_length:2 extension_length:2
//!                user description extension record* length:8
//! record      := oid:8 tid:8 previous:8 transaction:8 version_length:2 data_length:8
//!                (data | back_pointer:8)
//! ```
//!
//! `length` of a transaction counts from its tid up to, not including, the final copy of the
//! length. A record with `data_length` 0 has a back pointer to the record that holds its data;
//! back pointer 0 means that the object is deleted (or its creation undone).

use zodium_types::{Oid, Tid, TransactionMetadata};

/// Bytes of the magic at the start of the file; the first transaction follows it.
pub(crate) const MAGIC_BYTES: u64 = 4;
/// Fixed part of a transaction header.
pub(crate) const TRANSACTION_HEADER_BYTES: usize = 23;
/// Fixed part of a data record.
pub(crate) const DATA_HEADER_BYTES: usize = 42;
/// Length of a back pointer, and of the copy of the length that ends a transaction.
pub(crate) const POINTER_BYTES: u64 = 8;
/// Status of a voted and unfinished transaction. It ends the valid part of a file.
pub(crate) const STATUS_CHECKPOINT: u8 = b'c';
/// Offset of the status byte within a transaction.
pub(crate) const STATUS_OFFSET: usize = 16;

/// Tells the Python version of a file's pickles; the record format is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magic {
    /// `FS21`, Python 2.
    Fs21,
    /// `FS30`, Python 3.
    Fs30,
}

impl Magic {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Magic> {
        match bytes {
            b"FS21" => Some(Magic::Fs21),
            b"FS30" => Some(Magic::Fs30),
            _ => None,
        }
    }

    pub(crate) fn bytes(self) -> &'static [u8; MAGIC_BYTES as usize] {
        match self {
            Magic::Fs21 => b"FS21",
            Magic::Fs30 => b"FS30",
        }
    }
}

/// The fixed part of a transaction record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransactionHeader {
    pub(crate) tid: Tid,
    /// Bytes from the tid up to the final copy of this length.
    pub(crate) length: u64,
    pub(crate) status: u8,
    pub(crate) user_length: u16,
    pub(crate) description_length: u16,
    pub(crate) extension_length: u16,
}

impl TransactionHeader {
    /// Offset of the length within a transaction.
    pub(crate) const LENGTH_OFFSET: u64 = 8;

    pub(crate) fn parse(bytes: &[u8; TRANSACTION_HEADER_BYTES]) -> TransactionHeader {
        TransactionHeader {
            tid: Tid(u64_at(bytes, 0)),
            length: u64_at(bytes, 8),
            status: bytes[STATUS_OFFSET],
            user_length: u16_at(bytes, 17),
            description_length: u16_at(bytes, 19),
            extension_length: u16_at(bytes, 21),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.tid.to_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        out.push(self.status);
        out.extend_from_slice(&self.user_length.to_be_bytes());
        out.extend_from_slice(&self.description_length.to_be_bytes());
        out.extend_from_slice(&self.extension_length.to_be_bytes());
    }

    /// Bytes of user, description and extension together.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        u64::from(self.user_length)
            + u64::from(self.description_length)
            + u64::from(self.extension_length)
    }

    /// Bytes before the first data record.
    pub(crate) fn records_offset(&self) -> u64 {
        TRANSACTION_HEADER_BYTES as u64 + self.metadata_bytes()
    }

    /// Splits the bytes that follow the fixed part; `None` when their number differs from the
    /// header's lengths.
    pub(crate) fn metadata(&self, bytes: &[u8]) -> Option<TransactionMetadata> {
        let (user, rest) = bytes.split_at_checked(self.user_length.into())?;
        let (description, rest) = rest.split_at_checked(self.description_length.into())?;
        let (extension, rest) = rest.split_at_checked(self.extension_length.into())?;
        rest.is_empty().then(|| TransactionMetadata {
            user: user.to_vec(),
            description: description.to_vec(),
            extension: extension.to_vec(),
        })
    }
}

/// The fixed part of a data record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataHeader {
    pub(crate) oid: Oid,
    /// Equal to the tid of the transaction that contains the record.
    pub(crate) tid: Tid,
    /// Position of the object's current record before this transaction, or 0.
    pub(crate) previous: u64,
    /// Position of the transaction that contains the record.
    pub(crate) transaction: u64,
    pub(crate) version_length: u16,
    /// Bytes of data; 0 means that a back pointer follows instead.
    pub(crate) data_length: u64,
}

impl DataHeader {
    pub(crate) const TID_OFFSET: usize = 8;
    pub(crate) const TRANSACTION_OFFSET: usize = 24;

    #[inline]
    pub(crate) fn parse(bytes: &[u8; DATA_HEADER_BYTES]) -> DataHeader {
        DataHeader {
            oid: Oid(u64_at(bytes, 0)),
            tid: Tid(u64_at(bytes, Self::TID_OFFSET)),
            previous: u64_at(bytes, 16),
            transaction: u64_at(bytes, Self::TRANSACTION_OFFSET),
            version_length: u16_at(bytes, 32),
            data_length: u64_at(bytes, 34),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.oid.to_bytes());
        out.extend_from_slice(&self.tid.to_bytes());
        out.extend_from_slice(&self.previous.to_be_bytes());
        out.extend_from_slice(&self.transaction.to_be_bytes());
        out.extend_from_slice(&self.version_length.to_be_bytes());
        out.extend_from_slice(&self.data_length.to_be_bytes());
    }

    /// Length of the whole record.
    #[inline]
    pub(crate) fn record_bytes(&self) -> u64 {
        record_bytes(self.data_length)
    }
}

/// Length of a record with this much data, or with a back pointer when there is none.
#[inline]
pub(crate) fn record_bytes(data_length: u64) -> u64 {
    let body = if data_length == 0 { POINTER_BYTES } else { data_length };
    body.saturating_add(DATA_HEADER_BYTES as u64)
}

/// The big-endian number in the 8 bytes of `bytes` at `offset`. Bytes past the end count as zero.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..offset + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes)
}

#[inline]
fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes.get(offset..offset + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_written_as_the_format_says() {
        let mut bytes = Vec::new();
        let header = TransactionHeader {
            tid: Tid(0x03f5_9458_1777_7777),
            length: 74,
            status: b' ',
            user_length: 3,
            description_length: 2,
            extension_length: 0,
        };
        header.write(&mut bytes);
        let expected = b"\x03\xf5\x94\x58\x17\x77\x77\x77\0\0\0\0\0\0\0\x4a \0\x03\0\x02\0\0";
        assert_eq!(bytes, expected);
        assert_eq!(TransactionHeader::parse(expected), header);

        bytes.clear();
        let header = DataHeader {
            oid: Oid(1),
            tid: Tid(0x03f5_9458_1777_7777),
            previous: 0,
            transaction: 4,
            version_length: 0,
            data_length: 4,
        };
        header.write(&mut bytes);
        assert_eq!(bytes.len(), DATA_HEADER_BYTES);
        assert_eq!(DataHeader::parse(bytes.as_slice().try_into().unwrap()), header);
        assert_eq!(header.record_bytes(), 46);
    }
}
