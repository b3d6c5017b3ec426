//! The status and metadata of a transaction.

use thiserror::Error;

/// User, description and extension of a transaction, as FileStorage stores them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionMetadata {
    /// The user; UTF-8 by convention, at most 65,535 bytes.
    pub user: Vec<u8>,
    /// The description; UTF-8 by convention, at most 65,535 bytes.
    pub description: Vec<u8>,
    /// A pickled dict, or empty; at most 65,535 bytes.
    pub extension: Vec<u8>,
}

/// The error for a metadata field that is too long for its 16-bit length in the file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the transaction's {field} has {length} bytes; at most 65535 fit")]
pub struct MetadataTooLong {
    /// `user`, `description` or `extension`.
    pub field: &'static str,
    /// Its length in bytes.
    pub length: usize,
}

impl TransactionMetadata {
    /// Checks that every field fits into a transaction header: 65,535 bytes each.
    pub fn check(&self) -> Result<(), MetadataTooLong> {
        let fields = [
            ("user", &self.user),
            ("description", &self.description),
            ("extension", &self.extension),
        ];
        match fields.iter().find(|(_, value)| value.len() > usize::from(u16::MAX)) {
            Some((field, value)) => Err(MetadataTooLong { field, length: value.len() }),
            None => Ok(()),
        }
    }
}

/// The status byte of a committed transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionStatus {
    /// `' '`: committed and undoable.
    #[default]
    Normal,
    /// `'p'`: written by a pack; not undoable.
    Packed,
    /// `'u'`: undone, by an old version of ZODB; its records do not count.
    Undone,
}

impl TransactionStatus {
    /// The byte in the file and the character on the wire.
    pub fn to_byte(self) -> u8 {
        match self {
            TransactionStatus::Normal => b' ',
            TransactionStatus::Packed => b'p',
            TransactionStatus::Undone => b'u',
        }
    }

    /// The status with this byte; `None` for any other byte, such as that of a checkpoint.
    pub fn from_byte(byte: u8) -> Option<TransactionStatus> {
        match byte {
            b' ' => Some(TransactionStatus::Normal),
            b'p' => Some(TransactionStatus::Packed),
            b'u' => Some(TransactionStatus::Undone),
            _ => None,
        }
    }
}
