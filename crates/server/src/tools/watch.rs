//! `zodium watch`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use zodium_client::Watcher;
use zodium_filestorage::{FileStorage, FileStorageError};
use zodium_storage::{LogItem, StorageError};
use zodium_tools::{TidRange, ToolError, walk};
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
}

pub(super) fn run(options: &WatchOptions) -> Result<ExitCode> {
    let (name, how) = (options.storage.alone()?, options.storage.how());
    let printer = Printer { output: Output::new()?, verbose: options.verbose, json: options.json };
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
}

impl Printer {
    fn begin(&mut self, last: Tid) -> Result<()> {
        match self.json {
            true => self.output.line(json!({ "at": last.to_string() }))?,
            false => self.output.line(format_args!("# at {last}"))?,
        }
        self.output.flush()
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
    let mut tail = match how.read(name)?.file {
        Some(file) => FileStorage::follow(&file).map_err(StorageError::from)?,
        None => bail!("this is no data file"),
    };
    printer.begin(tail.last_tid())?;
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
    let opened = how.read(name)?.storage;
    let mut last = opened.last_tid();
    printer.begin(last)?;
    loop {
        thread::sleep(DATABASE_INTERVAL);
        let storage = match name {
            // A cluster tells its clients.
            StorageName::Neo(_) => Arc::clone(&opened),
            // What another process commits is seen by a storage that is opened anew.
            _ => how.read(name)?.storage,
        };
        let range = TidRange { min: Some(last.next()), max: Some(storage.last_tid()) };
        let mut commits: Vec<(Tid, Vec<Oid>)> = Vec::new();
        walk(&*storage, range, &mut |item| {
            match item {
                LogItem::Transaction { tid, .. } => commits.push((tid, Vec::new())),
                LogItem::Record { oid, .. } => {
                    commits.iter_mut().last().into_iter().for_each(|(_, oids)| oids.push(oid));
                }
                LogItem::Skipped => {}
            }
            Ok(())
        })?;
        for (tid, oids) in commits {
            last = tid;
            printer.commit(tid, &oids)?;
        }
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
    fn invalidated(&self, tid: Tid, oids: &[Oid]) {
        self.send(Event::Commit(tid, oids.to_vec()));
    }

    fn disconnected(&self) {
        self.send(Event::Closed);
    }
}

fn watch_server(how: &OpenArguments, name: &StorageName, mut printer: Printer) -> Result<()> {
    let (sender, events) = sync_channel(COMMITS_MAX);
    let client = how.watched(name, Arc::new(Events(sender)))?;
    let last = client.last_tid();
    printer.begin(last)?;
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
