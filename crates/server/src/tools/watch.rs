//! `zodium watch`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use jiff::Zoned;
use serde_json::json;
use zodium_client::{ClientError, ServerStorage, Watcher};
use zodium_filestorage::{FileStorage, FileStorageError};
use zodium_storage::{LogItem, Read, StorageError};
use zodium_tools::{TidRange, ToolError, parse_tid, walk};
use zodium_types::{Oid, Tid};

use super::open::{OpenArguments, StorageArguments};
use super::output::Output;
use super::storage_name::StorageName;

/// How often a file is looked at.
const FILE_INTERVAL: Duration = Duration::from_millis(100);
/// How often a database is looked at.
const DATABASE_INTERVAL: Duration = Duration::from_secs(1);
/// Looks at bytes of a file that are no transaction, before they are damage.
const LOOKS_MAX: u32 = 20;
/// Commits of a server that wait to be printed.
const COMMITS_MAX: usize = 1 << 16;

/// Options of `zodium watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchOptions {
    #[command(flatten)]
    storage: StorageArguments,

    /// Print the objects of each transaction too
    #[arg(long, short)]
    verbose: bool,

    /// Print JSON: one object a line for each transaction
    #[arg(long)]
    json: bool,

    /// Begin after this transaction, or after this time: print what was committed since [default:
    /// the last transaction]
    #[arg(long, value_name = "TID|TIME")]
    at: Option<String>,
}

pub(super) fn run(options: &WatchOptions) -> Result<ExitCode> {
    let (name, how) = (options.storage.alone()?, options.storage.how());
    let at = options.at.as_ref().map(|text| parse_tid(text, &Zoned::now())).transpose()?;
    let printer =
        Printer { output: Output::new()?, verbose: options.verbose, json: options.json, at };
    match &name {
        StorageName::File(_) => watch_file(how, &name, printer)?,
        StorageName::Sqlite(_) | StorageName::Maria(_) | StorageName::Neo(_) => {
            watch_database(how, &name, printer)?
        }
        StorageName::Server(_) => watch_server(how, &name, printer)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints commits as they come.
struct Printer {
    output: Output,
    verbose: bool,
    json: bool,
    /// Where to begin, if not at the last transaction.
    at: Option<Tid>,
}

impl Printer {
    /// Prints where it begins, and what was committed from there up to `last`.
    fn begin(&mut self, storage: &dyn Read, last: Tid) -> Result<()> {
        let at = self.at.unwrap_or(last).min(last);
        match self.json {
            true => self.output.line(json!({ "at": at.to_string() }))?,
            false => self.output.line(format_args!("# at {at}"))?,
        }
        self.log(storage, at, last)?;
        self.output.flush()
    }

    /// Prints the commits after `at`, up to `last`; the last one of them, or `at`.
    fn log(&mut self, storage: &dyn Read, at: Tid, last: Tid) -> Result<Tid> {
        if at >= last {
            return Ok(at);
        }
        let mut commits: Vec<(Tid, Vec<Oid>)> = Vec::new();
        walk(storage, TidRange { min: Some(at.next()), max: Some(last) }, &mut |item| {
            match item {
                LogItem::Transaction { tid, .. } => commits.push((tid, Vec::new())),
                LogItem::Record { oid, .. } => {
                    commits.iter_mut().last().into_iter().for_each(|(_, oids)| oids.push(oid));
                }
                LogItem::Skipped => {}
            }
            Ok(())
        })?;
        commits.iter().try_for_each(|(tid, oids)| self.commit(*tid, oids))?;
        Ok(commits.last().map_or(at, |(tid, _)| *tid))
    }

    fn commit(&mut self, tid: Tid, oids: &[Oid]) -> Result<()> {
        if self.json {
            let oids: Vec<_> = oids.iter().map(Oid::to_string).collect();
            self.output.line(match self.verbose {
                true => json!({ "tid": tid.to_string(), "oids": oids }),
                false => json!({ "tid": tid.to_string() }),
            })?;
            return self.output.flush();
        }
        self.output.line(format_args!("txn {tid}"))?;
        if self.verbose {
            oids.iter().try_for_each(|oid| self.output.line(format_args!("obj {oid}")))?;
            self.output.line("")?;
        }
        self.output.flush()
    }

    fn end(&mut self) -> Result<()> {
        if !self.json {
            self.output.line("# storage closed")?;
        }
        self.output.flush()
    }
}

fn watch_file(how: &OpenArguments, name: &StorageName, mut printer: Printer) -> Result<()> {
    let Some(file) = how.read(name)?.file else { bail!("this is no data file") };
    let mut tail = FileStorage::follow(&file).map_err(StorageError::from)?;
    printer.begin(&*file, tail.last_tid())?;
    drop(file);
    let mut doubts = 0;
    loop {
        match tail.step() {
            Ok(Some((tid, oids))) => {
                doubts = 0;
                printer.commit(tid, &oids)?;
            }
            Ok(None) => thread::sleep(FILE_INTERVAL),
            // A writer may be in the middle of it.
            Err(FileStorageError::Corrupt { .. }) if doubts < LOOKS_MAX => {
                doubts += 1;
                thread::sleep(FILE_INTERVAL);
            }
            Err(error) => return Err(ToolError::from(StorageError::from(error)).into()),
        }
    }
}

fn watch_database(how: &OpenArguments, name: &StorageName, mut printer: Printer) -> Result<()> {
    let mut opened = how.read(name)?.storage;
    let mut last = opened.last_tid();
    printer.begin(&*opened, last)?;
    loop {
        thread::sleep(DATABASE_INTERVAL);
        // A cluster tells its clients. What another process commits to a database is seen by a
        // storage that is opened anew; a database is locked as long as it is open.
        if !matches!(name, StorageName::Neo(_)) {
            drop(opened);
            opened = how.read(name)?.storage;
        }
        last = printer.log(&*opened, last, opened.last_tid())?;
    }
}

/// What a server tells.
enum Event {
    Commit(Tid, Vec<Oid>),
    Closed,
}

/// Hands the events of a server to the thread that prints them.
struct Events(SyncSender<Event>);

impl Events {
    fn send(&self, event: Event) {
        // The thread that reads from the server must not wait for the terminal.
        if let Err(TrySendError::Full(_)) = self.0.try_send(event) {
            tracing::warn!("the output is not read: commits are left out");
        }
    }
}

impl Watcher for Events {
    fn invalidated(&self, tid: Tid, oids: &[Oid]) -> Result<(), ClientError> {
        self.send(Event::Commit(tid, oids.to_vec()));
        Ok(())
    }

    fn disconnected(&self) {
        self.send(Event::Closed);
    }
}

fn watch_server(how: &OpenArguments, name: &StorageName, mut printer: Printer) -> Result<()> {
    let (sender, events) = sync_channel(COMMITS_MAX);
    let client = how.watched(name, Arc::new(Events(sender)))?;
    let last = client.last_tid();
    printer.begin(&ServerStorage::new(Arc::clone(&client), &[]), last)?;
    for event in events {
        match event {
            // Those that came before it was asked are part of it.
            Event::Commit(tid, oids) if tid > last => printer.commit(tid, &oids)?,
            Event::Commit(..) => {}
            Event::Closed => break,
        }
    }
    printer.end()
}
