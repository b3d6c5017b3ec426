//! Lines on standard output, of commands that work on without them.

use std::cell::RefCell;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Result;
use zodium_filestorage::FileStorageError;

use crate::error_text::in_words;
use crate::streams::complain;

/// Exit code for what cannot be read or written, and for a wrong command line.
pub(crate) const UNREADABLE: u8 = 2;

/// Lines on standard output. If it is closed the work goes on, for its exit code.
pub(crate) struct Lines {
    output: RefCell<io::Result<BufWriter<io::Stdout>>>,
}

impl Lines {
    pub(crate) fn new() -> Lines {
        Lines { output: RefCell::new(Ok(BufWriter::new(io::stdout()))) }
    }

    pub(crate) fn write(&self, line: impl std::fmt::Display) {
        let mut output = self.output.borrow_mut();
        let written = output.as_mut().map(|output| writeln!(output, "{line}"));
        if let Ok(Err(error)) = written {
            *output = Err(error);
        }
    }

    /// Flushes what was written.
    pub(crate) fn finish(self) -> Result<()> {
        match self.output.into_inner().and_then(|mut output| output.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Ends a command that failed in the middle.
    pub(crate) fn failed(self, error: &anyhow::Error) -> Result<ExitCode> {
        self.finish()?;
        complain!("zodium: {}", in_words(error));
        Ok(ExitCode::from(UNREADABLE))
    }

    /// Ends a command that failed.
    pub(crate) fn unreadable(self, error: &FileStorageError) -> Result<ExitCode> {
        self.finish()?;
        complain!("zodium: {error}");
        Ok(ExitCode::from(UNREADABLE))
    }
}
