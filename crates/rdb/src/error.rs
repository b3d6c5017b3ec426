//! Why bytes are no RDB.

use std::io;

/// Why bytes are no RDB, or none that can be read.
#[derive(Debug, thiserror::Error)]
pub enum RdbError {
    /// The system failed, or the input ends early.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// The bytes make no sense.
    #[error("damaged: {0}")]
    Damaged(&'static str),
    /// Values of this kind are not known here.
    #[error("{0}")]
    Unsupported(String),
}
