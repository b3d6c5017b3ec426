//! All headers of a data file, as the class `Dumper` of ZODB's fsdump prints them.

use std::io::{self, Write};

use zodium_storage::LogItem;

use crate::ToolError;
use crate::places::Place;
use crate::text::bytes_repr;

/// The header of a record, and the position that stands behind it in place of data.
const RECORD_HEAD_BYTES: usize = 50;
const RULE_WIDTH: usize = 60;

/// Reads bytes of the data file at a position.
pub type ReadAt<'r> = dyn Fn(&mut [u8], u64) -> io::Result<()> + 'r;

/// Writes the headers of a data file.
pub struct HeaderWriter<'r, W> {
    out: W,
    read_at: &'r ReadAt<'r>,
    /// The transaction whose records come now.
    transaction: Option<Place>,
}

impl<'r, W: Write> HeaderWriter<'r, W> {
    /// Writes what identifies the file.
    pub fn new(out: W, read_at: &'r ReadAt<'r>) -> Result<HeaderWriter<'r, W>, ToolError> {
        let mut magic = [0; 4];
        read_at(&mut magic, 0).map_err(ToolError::Input)?;
        let mut writer = HeaderWriter { out, read_at, transaction: None };
        writer.rule("*")?;
        writer.line(format_args!("file identifier: {}", bytes_repr(&magic)))?;
        Ok(writer)
    }

    /// Writes the next item.
    pub fn write(&mut self, item: LogItem<'_>, place: Place) -> Result<(), ToolError> {
        match item {
            LogItem::Transaction { tid, status, user, description, extension } => {
                self.end_transaction()?;
                self.transaction = Some(place);
                // Empty ones are never read.
                let text = |bytes: &[u8]| match bytes {
                    [] => "''".to_owned(),
                    bytes => bytes_repr(bytes),
                };
                let Place { position, bytes } = place;
                self.rule("=")?;
                self.line(format_args!("offset: {position}"))?;
                self.line(format_args!("end pos: {}", position + bytes))?;
                self.line(format_args!("transaction id: {tid}"))?;
                self.line(format_args!("trec len: {bytes}"))?;
                self.line(format_args!("status: {}", bytes_repr(&[status.to_byte()])))?;
                self.line(format_args!("user: {}", text(user)))?;
                self.line(format_args!("description: {}", text(description)))?;
                self.line(format_args!("len(extra): {}", extension.len()))
            }
            LogItem::Record { .. } => self.record(place.position),
            LogItem::Skipped => Ok(()),
        }
    }

    fn record(&mut self, position: u64) -> Result<(), ToolError> {
        let mut head = [0; RECORD_HEAD_BYTES];
        // A record without data has a position behind its header, and one with data has some.
        (self.read_at)(&mut head, position).map_err(ToolError::Input)?;
        let number = |at: usize| {
            head[at..at + 8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        self.rule("-")?;
        self.line(format_args!("offset: {position}"))?;
        self.line(format_args!("oid: {:016x}", number(0)))?;
        self.line(format_args!("revid: {:016x}", number(8)))?;
        self.line(format_args!("previous record offset: {}", number(16)))?;
        self.line(format_args!("transaction offset: {}", number(24)))?;
        self.line(format_args!("len(data): {}", number(34)))?;
        match number(34) {
            0 => self.line(format_args!("backpointer: {}", number(42))),
            _ => Ok(()),
        }
    }

    fn end_transaction(&mut self) -> Result<(), ToolError> {
        match self.transaction.take() {
            Some(place) => self.line(format_args!("redundant trec len: {}", place.bytes)),
            None => Ok(()),
        }
    }

    /// Ends the text.
    pub fn finish(mut self) -> Result<(), ToolError> {
        self.end_transaction()?;
        self.out.flush().map_err(ToolError::Output)
    }

    fn rule(&mut self, character: &str) -> Result<(), ToolError> {
        self.line(format_args!("{}", character.repeat(RULE_WIDTH)))
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), ToolError> {
        writeln!(self.out, "{text}").map_err(ToolError::Output)
    }
}
