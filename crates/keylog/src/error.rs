//! Why a log cannot be opened, or not be written to its end.

use std::io;
use std::path::PathBuf;

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system failed.
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        /// What failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process has it.
    #[error(
        "{} is in use by {}: stop that server first, or name another file",
        path.display(),
        owner.map_or("another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// Its process id, if it is known.
        owner: Option<u32>,
    },
    /// It is another file.
    #[error(
        "{} is no log of keys: it does not begin with {}. Name another file, or remove this one",
        path.display(),
        String::from_utf8_lossy(crate::record::MAGIC)
    )]
    NoLog {
        /// The file.
        path: PathBuf,
    },
    /// A newer program wrote it.
    #[error(
        "{} has version {version} of the format, this program knows version {}: use the newer \
         program",
        path.display(),
        crate::record::VERSION
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version that it has.
        version: u32,
    },
    /// A sound record has something that the program does not know.
    #[error(
        "{} has at byte {position} what this program does not know ({what}): use the newer program \
         that wrote it",
        path.display()
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Where the record begins.
        position: u64,
        /// What is unknown.
        what: String,
    },
    /// There are sound records behind damaged bytes, so these are not the end of a torn write.
    #[error(
        "{} is damaged at byte {position}: records behind it are sound, so that this is no write \
         that a crash has cut off. Put a backup of the file back; or keep what is before the \
         damage, and lose the changes behind it: truncate -s {position} {}",
        path.display(),
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage begins.
        position: u64,
    },
}

/// What was appended to a log could not all be written before it was closed.
#[derive(Debug, thiserror::Error)]
#[error("up to {bytes} bytes of changes could not be written to {}: {reason}", path.display())]
pub struct CloseError {
    /// The file.
    pub path: PathBuf,
    /// Bytes that are not known to be in the file, or on the device; a part of them may be.
    pub bytes: u64,
    /// Why.
    pub reason: String,
}
