//! Why the checksums beside a data file are not used.

use std::fmt;

/// Why the checksums beside a data file are not used. They are used only if nothing shows that
/// another program has written or replaced the file since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distrust {
    /// The file that holds them cannot be read.
    Unreadable,
    /// Their file is incomplete, damaged, or of a version that is too old.
    Format,
    /// Their file has this version, which a later program wrote.
    LaterVersion(u32),
    /// The lock file does not name the session that wrote them.
    OtherWriter,
    /// They belong to another data file.
    OtherFile,
    /// The data file is shorter.
    OtherLength {
        /// Its length before.
        was: u64,
        /// Its length now.
        is: u64,
    },
    /// The data file holds another transaction.
    OtherContents {
        /// Where a transaction begins according to them.
        position: u64,
    },
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distrust::Unreadable => write!(f, "they cannot be read"),
            Distrust::Format => {
                write!(f, "their file is incomplete or damaged, or of an early version of Zodium")
            }
            Distrust::LaterVersion(version) => write!(
                f,
                "their file has version {version}, which a later Zodium wrote and this one does \
                 not know: check the data file with that one"
            ),
            Distrust::OtherWriter => {
                write!(f, "another program has opened the data file for writing since")
            }
            Distrust::OtherFile => {
                write!(f, "the data file was replaced or copied since")
            }
            Distrust::OtherLength { was, is } => {
                write!(
                    f,
                    "the data file had {was} bytes and has {is}: it was cut, continued or replaced"
                )
            }
            Distrust::OtherContents { position } => {
                write!(f, "the data file has another transaction at position {position}")
            }
        }
    }
}
