//! Why bytes are no RDB.

use std::io::{self, ErrorKind};

/// Why bytes are no RDB, or none that can be read.
#[derive(Debug, thiserror::Error)]
pub enum RdbError {
    /// The system failed, or the input ends early.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// The bytes make no sense.
    #[error("damaged: {0}")]
    Damaged(&'static str),
    /// A file makes no sense, or ends early.
    #[error(
        "damaged: {what}{}, noticed at byte {position}. `valkey-check-rdb` tells more; take \
         another copy, or save again",
        of_key(key.as_deref())
    )]
    DamagedFile {
        /// Why.
        what: &'static str,
        /// The key that was being read.
        key: Option<Vec<u8>>,
        /// Number of bytes that were read.
        position: u64,
    },
    /// Values of this kind are not known here.
    #[error("{0}")]
    Unsupported(String),
}

impl RdbError {
    /// The same error, as one of a file.
    pub(crate) fn in_file(self, key: Option<&[u8]>, position: u64) -> RdbError {
        let damaged = |what| RdbError::DamagedFile { what, key: key.map(Vec::from), position };
        match (self, key) {
            (RdbError::Damaged(what), _) => damaged(what),
            (RdbError::Io(error), _) if error.kind() == ErrorKind::UnexpectedEof => {
                damaged("it ends early")
            }
            (RdbError::Unsupported(text), Some(key)) => {
                RdbError::Unsupported(format!("the key '{}' has {text}", key.escape_ascii()))
            }
            (other, _) => other,
        }
    }
}

fn of_key(key: Option<&[u8]>) -> String {
    key.map(|key| format!(", in the value of the key '{}'", key.escape_ascii())).unwrap_or_default()
}
