//! Formats of data files that name positions: those of ZODB's fsdump and fstail.

use std::io::Write;

use sha1::{Digest, Sha1};
use zodium_storage::LogItem;
use zodium_types::Tid;

use crate::ToolError;
use crate::classes::class_of;
use crate::text::{bytes_repr, str_repr, time_of};

/// Bytes of a transaction's header before user, description and extension.
const HEADER_BYTES: u64 = 23;

/// Where an item of a log is in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its position, in bytes from the start of the file.
    pub position: u64,
    /// Its length; of a transaction without the copy of its length at the end.
    pub bytes: u64,
}

/// Writes a log as ZODB's fsdump does. Without places, sizes and offsets of transactions are left
/// out.
pub struct FsdumpWriter<W> {
    out: W,
    transactions: u64,
    records: u64,
}

impl<W: Write> FsdumpWriter<W> {
    /// Nothing is written yet.
    pub fn new(out: W) -> FsdumpWriter<W> {
        FsdumpWriter { out, transactions: 0, records: 0 }
    }

    /// Writes the next item.
    pub fn write(&mut self, item: LogItem<'_>, place: Option<Place>) -> Result<(), ToolError> {
        let line = match item {
            LogItem::Transaction { tid, status, user, description, extension } => {
                let (number, time) = (self.transactions, time_of(tid));
                (self.transactions, self.records) = (number + 1, 0);
                let header = user.len() + description.len() + extension.len();
                let size = place.map_or(String::new(), |place| format!(" size={}", place.bytes));
                let offset = place.map_or(String::new(), |place| {
                    format!(" offset={}", place.position + HEADER_BYTES + header as u64)
                });
                format!(
                    "Trans #{number:05} tid={tid}{size} time={time}{offset}\n    \
                     status={} user={} description={}\n",
                    str_repr(&char::from(status.to_byte()).to_string()),
                    bytes_repr(user),
                    bytes_repr(description),
                )
            }
            LogItem::Record { oid, data, data_tid } => {
                let number = self.records;
                self.records += 1;
                let (size, class) = match data {
                    Some(data) => (format!(" size={}", data.len()), class_of(data)),
                    None => (String::new(), "undo or abort of object creation".into()),
                };
                let back = data_tid.map_or(String::new(), |tid| format!(" bp={tid}"));
                format!("  data #{number:05} oid={oid}{size} class={class}{back}\n")
            }
            LogItem::Skipped => return Ok(()),
        };
        self.out.write_all(line.as_bytes()).map_err(ToolError::Output)
    }

    /// Ends the text.
    pub fn finish(mut self) -> Result<(), ToolError> {
        self.out.flush().map_err(ToolError::Output)
    }
}

/// A transaction near the end of a data file.
pub struct TailEntry<'a> {
    /// Its tid.
    pub tid: Tid,
    /// The user that committed it.
    pub user: &'a [u8],
    /// The user's description of it.
    pub description: &'a [u8],
    /// Where it is.
    pub place: Place,
    /// Bytes of its header, metadata included.
    pub header_bytes: u64,
    /// SHA-1 of its records, in hexadecimal digits.
    pub hash: String,
}

impl TailEntry<'_> {
    /// As ZODB's fstail prints it, with an empty line at the end.
    pub fn text(&self) -> String {
        let TailEntry { tid, user, description, place, header_bytes, hash } = self;
        let text = |bytes: &[u8]| match bytes {
            [] => "''".to_owned(),
            bytes => bytes_repr(bytes),
        };
        format!(
            "{}: hash={hash}\nuser={} description={} length={} offset={} (+{header_bytes})\n\n",
            time_of(*tid),
            text(user),
            text(description),
            place.bytes,
            place.position,
        )
    }
}

/// SHA-1 of bytes that come in pieces.
#[derive(Default)]
pub struct PiecewiseSha1(Sha1);

impl PiecewiseSha1 {
    /// Adds a piece.
    pub fn add(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The hash in hexadecimal digits.
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
