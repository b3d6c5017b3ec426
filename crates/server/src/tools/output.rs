//! What the commands print.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;

use anyhow::Result;
use zodium_tools::ToolError;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Standard output, which is data and not lines.
pub(super) struct Output {
    file: BufWriter<File>,
}

impl Output {
    /// Nothing is written yet.
    pub(super) fn new() -> Result<Output> {
        let file = io::stdout().as_fd().try_clone_to_owned().map_err(ToolError::Output)?;
        Ok(Output { file: BufWriter::with_capacity(BUFFER_BYTES, File::from(file)) })
    }

    /// Prints a line.
    pub(super) fn line(&mut self, line: impl std::fmt::Display) -> Result<()> {
        Ok(self.tool_line(line)?)
    }

    /// As [`Output::line`], for the visitors of tools.
    pub(super) fn tool_line(&mut self, line: impl std::fmt::Display) -> Result<(), ToolError> {
        writeln!(self.file, "{line}").map_err(ToolError::Output)
    }

    /// Prints text that has its ends of lines.
    pub(super) fn text(&mut self, text: &str) -> Result<()> {
        Ok(self.file.write_all(text.as_bytes()).map_err(ToolError::Output)?)
    }

    /// Brings what was printed so far to the reader.
    pub(super) fn flush(&mut self) -> Result<()> {
        Ok(self.file.flush().map_err(ToolError::Output)?)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
