//! `zodium gc`.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use zodium_client::ServerStorage;
use zodium_storage::Read;
use zodium_tools::gc::{Databases, Marking, Outcome, Sweep, sweep};
use zodium_types::Tid;

use super::open::{OpenArguments, Writable, configured_all};
use super::output::Output;
use super::shown::Shown;
use super::storage_name::StorageName;
use super::sweeping::{LocalSweep, ServerSweep, SharedSweep};
use crate::pack::days;
use crate::progress::Progress;

/// What the first part of the work is.
const MARKING: &str = "looking for garbage in";
const NANOS_PER_DAY: f64 = 24.0 * 60.0 * 60.0 * 1e9;

/// Options of `zodium gc`.
#[derive(Debug, Args)]
pub(crate) struct GcOptions {
    /// The databases that refer to each other, each as NAME=STORAGE; the name can be left out for a
    /// single one. Without any, all storages of the configuration
    #[arg(value_name = "[NAME=]STORAGE", required_unless_present = "config")]
    storages: Vec<String>,

    #[command(flatten)]
    how: OpenArguments,

    /// Keep what was in use at any moment of the last N days
    ///
    /// An application may hold an object that nothing refers to any more, and refer to it again. So
    /// this should be longer than its longest transaction, and than the time in which users undo.
    #[arg(long, short, value_name = "N", default_value = "1", value_parser = days)]
    days: f64,

    /// Ignore references to this database
    #[arg(long, short, value_name = "NAME")]
    ignore: Vec<String>,

    /// Delete nothing
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Print the garbage, an object a line
    #[arg(long, short)]
    verbose: bool,

    /// Print JSON: one object a line for each database, with --verbose also for each object
    #[arg(long)]
    json: bool,
}

/// A database, open in the way that is needed.
struct Opened {
    name: String,
    storage: Arc<dyn Read>,
    writable: Option<Writable>,
}

pub(super) fn run(options: &GcOptions) -> Result<ExitCode> {
    let databases = open_all(options)?;
    let outcome = collect(options, &databases);
    let mut closed = Ok(());
    for database in &databases {
        if let Some(Writable::Local(storage)) = &database.writable {
            closed = closed.and(storage.close());
        }
    }
    outcome?;
    closed?;
    Ok(ExitCode::SUCCESS)
}

fn collect(options: &GcOptions, opened: &[Opened]) -> Result<()> {
    let since = (Timestamp::now().as_nanosecond() as f64 - options.days * NANOS_PER_DAY).max(0.0);
    let all = opened.iter().map(|database| (database.name.clone(), &*database.storage)).collect();
    let databases = Databases { all, ignored: options.ignore.clone() };
    let mut marking = Marking::of(&databases, Tid::from_unix_nanos(since as u64))?;
    let summaries: Vec<_> = (0..opened.len()).map(|index| marking.summary(index)).collect();
    let mut output = Output::new()?;
    if options.verbose {
        for (index, database) in opened.iter().enumerate() {
            print_garbage(&database.name, &marking, index, options.json, &mut output)?;
        }
    }
    let outcomes = match options.dry_run {
        true => vec![Outcome::default(); opened.len()],
        false => {
            let targets = opened.iter().map(target).collect::<Result<Vec<_>>>()?;
            let targets: Vec<&dyn Sweep> = targets.iter().map(|target| &**target).collect();
            let progress = Progress::of_objects("deleting garbage".to_owned());
            let total = summaries.iter().map(|summary| summary.garbage).sum();
            sweep(&mut marking, &targets, &mut |done| progress.report(done, total))?
        }
    };
    for ((database, summary), outcome) in opened.iter().zip(summaries).zip(outcomes) {
        let name = &database.name;
        let Outcome { deleted, brought_back, left } = outcome;
        output.line(match options.json {
            true => json!({
                "database": name,
                "objects": summary.objects,
                "garbage": summary.garbage,
                "missing": summary.missing,
                "deleted": deleted,
                "brought_back": brought_back,
                "left": left,
            })
            .to_string(),
            false => format!(
                "{name}: {} of {} objects are garbage, {deleted} deleted{}{}{}",
                summary.garbage,
                summary.objects,
                some(brought_back, "brought back"),
                some(left, "left to others' changes"),
                some(summary.missing, "missing: see zodium refs"),
            ),
        })?;
    }
    output.flush()
}

/// A part of a sentence, unless there are none.
fn some(count: u64, what: &str) -> String {
    if count == 0 { String::new() } else { format!(", {count} {what}") }
}

fn print_garbage(
    name: &str,
    marking: &Marking<'_, '_>,
    index: usize,
    json: bool,
    output: &mut Output,
) -> Result<()> {
    marking.garbage(index).into_iter().try_for_each(|(oid, tid)| match json {
        true => output.line(json!({
            "database": name,
            "oid": oid.to_string(),
            "tid": tid.to_string(),
        })),
        false => output.line(format_args!("{name} {oid} {tid}")),
    })
}

fn open_all(options: &GcOptions) -> Result<Vec<Opened>> {
    let names = match (&options.storages[..], options.how.config()) {
        ([], Some(file)) => configured_all(file)?,
        (storages, None) => {
            storages.iter().map(|text| named(text, storages.len() == 1)).collect::<Result<_>>()?
        }
        (_, Some(_)) => bail!("give storages, or a configuration, but not both"),
    };
    for (index, (name, _)) in names.iter().enumerate() {
        if names[..index].iter().any(|(other, _)| other == name) {
            bail!("two databases have the name {name:?}");
        }
    }
    let open = |(name, storage): (String, StorageName)| open_one(options, name, &storage);
    names.into_iter().map(open).collect()
}

fn named(text: &str, is_only: bool) -> Result<(String, StorageName)> {
    match text.split_once('=') {
        Some((name, storage)) if !name.contains(['/', ':']) => {
            Ok((name.to_owned(), StorageName::parse(storage)?))
        }
        _ if is_only => Ok(("main".to_owned(), StorageName::parse(text)?)),
        _ => bail!(
            "{text}: give each of several databases as NAME=STORAGE, with the name that \
                    references to it have"
        ),
    }
}

fn open_one(options: &GcOptions, name: String, storage: &StorageName) -> Result<Opened> {
    if options.dry_run {
        let storage = Arc::new(Shown::new(options.how.read(storage)?.storage, MARKING));
        return Ok(Opened { name, storage, writable: None });
    }
    let writable = options.how.write(storage, false)?;
    let storage: Arc<dyn Read> = match &writable {
        Writable::Local(storage) => Arc::<dyn zodium_storage::Storage>::clone(storage),
        Writable::Server(client) => Arc::new(ServerStorage::new(Arc::clone(client), &[])),
    };
    let storage = Arc::new(Shown::new(storage, MARKING));
    Ok(Opened { name, storage, writable: Some(writable) })
}

fn target(database: &Opened) -> Result<Box<dyn Sweep + '_>> {
    Ok(match &database.writable {
        Some(Writable::Server(client)) => Box::new(ServerSweep::new(client)),
        Some(Writable::Local(storage)) => match storage.shared() {
            Some(shared) => Box::new(SharedSweep::new(&**storage, shared)),
            None => Box::new(LocalSweep::new(&**storage)),
        },
        None => bail!("database {} is open for reading only", database.name),
    })
}
