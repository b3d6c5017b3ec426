//! Writes log lines to their destinations: standard output, standard error, files, or several.
//!
//! Each thread writes its lines at once. Files are opened for appending, so other programs may
//! write to them or cut them. After a rotation they are reopened.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use tracing::{error, info, warn};
use tracing_subscriber::fmt::MakeWriter;
use zodium_configuration::LogDestination;
use zodium_disk::explain_denied;

/// Open destinations. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Destinations {
    all: Arc<[Destination]>,
}

#[derive(Debug)]
enum Destination {
    Stdout,
    Stderr,
    File { path: PathBuf, file: ArcSwap<File> },
}

/// Writes one line to all destinations.
pub(crate) struct Line<'a>(&'a Destinations);

impl Destinations {
    /// Opens all files, and creates missing ones.
    pub(crate) fn open(wanted: &[LogDestination]) -> Result<Destinations> {
        let open = |wanted: &LogDestination| {
            Ok(match wanted {
                LogDestination::Stdout => Destination::Stdout,
                LogDestination::Stderr => Destination::Stderr,
                LogDestination::File(path) => {
                    let file = ArcSwap::from_pointee(open_file(path)?);
                    Destination::File { path: path.clone(), file }
                }
            })
        };
        Ok(Destinations { all: wanted.iter().map(open).collect::<Result<_>>()? })
    }

    /// Whether all of them are terminals, so that colours are useful.
    pub(crate) fn are_terminals(&self) -> bool {
        self.all.iter().all(|destination| match destination {
            Destination::Stdout => io::stdout().is_terminal(),
            Destination::Stderr => io::stderr().is_terminal(),
            Destination::File { .. } => false,
        })
    }

    /// Logs the error that a program ends with. The caller prints it on standard error too.
    pub(crate) fn note_end<T>(&self, ended: &Result<T>) {
        let is_stderr = |destination: &Destination| matches!(destination, Destination::Stderr);
        if let (Err(failure), false) = (ended, self.all.iter().any(is_stderr)) {
            error!("{failure:#}");
        }
    }

    /// Reopens the files at a signal, after a rotation, and logs how that went.
    pub(crate) fn reload(&self) {
        match self.reopen() {
            Ok(()) => info!("SIGUSR2: reopened the log files"),
            Err(error) => warn!("SIGUSR2: {error:#}; the old file stays in use"),
        }
    }

    /// If a file cannot be opened, its old one stays in use.
    fn reopen(&self) -> Result<()> {
        let mut outcome = Ok(());
        for destination in self.all.iter() {
            if let Destination::File { path, file } = destination {
                match open_file(path) {
                    Ok(opened) => file.store(Arc::new(opened)),
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
        }
        outcome
    }
}

fn open_file(path: &Path) -> Result<File> {
    let opened = File::options().append(true).create(true).open(path);
    let opened = opened.map_err(|error| explain_denied(error, path));
    opened.with_context(|| format!("cannot open the log file {}", path.display()))
}

impl<'a> MakeWriter<'a> for Destinations {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_all(line).map(|()| line.len())
    }

    /// The subscriber calls this once for each line, so lines of several threads stay whole.
    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        let mut outcome = Ok(());
        for destination in self.0.all.iter() {
            // A failure of one (a full disk) does not affect the others.
            outcome = outcome.and(match destination {
                Destination::Stdout => io::stdout().write_all(line),
                Destination::Stderr => io::stderr().write_all(line),
                Destination::File { file, .. } => (&**file.load()).write_all(line),
            });
        }
        outcome
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_to_all_files_and_after_reopening_to_the_new_ones() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, old] = ["a.log", "b.log", "a.log.1"].map(|name| folder.path().join(name));
        let files = [&a, &b].map(|path| LogDestination::File(path.clone()));
        let destinations = Destinations::open(&files).unwrap();
        Line(&destinations).write_all(b"one\n").unwrap();
        std::fs::rename(&a, &old).unwrap();
        Line(&destinations).write_all(b"two\n").unwrap();
        destinations.reopen().unwrap();
        Line(&destinations).write_all(b"three\n").unwrap();
        assert_eq!(std::fs::read(&old).unwrap(), b"one\ntwo\n");
        assert_eq!(std::fs::read(&a).unwrap(), b"three\n");
        assert_eq!(std::fs::read(&b).unwrap(), b"one\ntwo\nthree\n");
    }

    #[test]
    fn a_file_that_cannot_be_opened_anew_is_written_to_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs").join("a.log");
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        let destinations = Destinations::open(&[LogDestination::File(path.clone())]).unwrap();
        std::fs::rename(folder.path().join("logs"), folder.path().join("old")).unwrap();
        let refused = destinations.reopen().unwrap_err().to_string();
        assert!(refused.contains("a.log"), "{refused}");
        Line(&destinations).write_all(b"kept\n").unwrap();
        assert_eq!(std::fs::read(folder.path().join("old/a.log")).unwrap(), b"kept\n");
    }
}
