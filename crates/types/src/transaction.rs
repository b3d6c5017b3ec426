//! What a transaction says about itself beside its records.

use thiserror::Error;

/// User, description and extension of a transaction, as FileStorage keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionMetadata {
    /// Who committed; UTF-8 by convention, at most 65,535 bytes.
    pub user: Vec<u8>,
    /// What for; UTF-8 by convention, at most 65,535 bytes.
    pub description: Vec<u8>,
    /// A pickled dict, or empty; at most 65,535 bytes.
    pub extension: Vec<u8>,
}

/// A metadata field that does not fit the 16-bit length the file has for it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the transaction's {field} has {length} bytes; at most 65535 fit")]
pub struct MetadataTooLong {
    /// `user`, `description` or `extension`.
    pub field: &'static str,
    /// Its length in bytes.
    pub length: usize,
}

impl TransactionMetadata {
    /// Checks every field against the 65,535 bytes that a transaction header can express.
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
    /// `'u'`: undone by a ZODB of long ago; its records do not count.
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

    /// The status of a committed transaction; `None` for anything else, checkpoints included.
    pub fn from_byte(byte: u8) -> Option<TransactionStatus> {
        match byte {
            b' ' => Some(TransactionStatus::Normal),
            b'p' => Some(TransactionStatus::Packed),
            b'u' => Some(TransactionStatus::Undone),
            _ => None,
        }
    }
}
