//! `zodium analyze`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use zodium_backup::BackupError;
use zodium_backup::repozo::read_delta;
use zodium_tools::TidRange;
use zodium_tools::analyze::Analysis;
use zodium_tools::delta_analysis::DeltaAnalysis;

use super::open::StorageArguments;
use super::output::Output;
use super::shown::Shown;
use super::storage_name::StorageName;
use super::view::ViewArguments;

/// Options of `zodium analyze`.
#[derive(Debug, Args)]
pub(crate) struct AnalyzeOptions {
    #[command(flatten)]
    storage: StorageArguments,

    /// The transactions, TIDMIN..TIDMAX
    range: Option<String>,

    /// As `zodb analyze` has it, to keep its maps on disk; ours are small enough for memory
    #[arg(id = "dbm", long = "dbm", short = 'd', hide = true)]
    _dbm: bool,

    /// Print comma-separated values
    #[arg(long, short, conflicts_with = "json")]
    csv: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArguments,
}

pub(super) fn run(options: &AnalyzeOptions) -> Result<ExitCode> {
    let (name, rest) = options.storage.with_rest(options.range.as_slice())?;
    if let StorageName::File(path) = &name
        && path.extension().is_some_and(|extension| extension == "deltafs")
    {
        return of_delta(path, &options.view.range_of_log(&rest)?, options);
    }
    let storage = options.storage.how().read(&name)?.storage;
    let storage = Shown::new(storage, "analyzing");
    let range = options.view.range(&rest, &storage)?;
    let analysis = Analysis::of(&storage, range)?;
    print(options, || analysis.table(), || analysis.csv(), || analysis.json())
}

/// Prints a report in the form that is asked for.
fn print(
    options: &AnalyzeOptions,
    table: impl FnOnce() -> String,
    csv: impl FnOnce() -> String,
    json: impl FnOnce() -> serde_json::Value,
) -> Result<ExitCode> {
    let mut output = Output::new()?;
    match (options.csv, options.json) {
        (true, _) => output.text(&csv())?,
        (_, true) => output.line(json())?,
        _ => output.text(&table())?,
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Analyzes a range of a data file that repozo has saved.
fn of_delta(path: &Path, range: &TidRange, options: &AnalyzeOptions) -> Result<ExitCode> {
    let mut analysis = DeltaAnalysis::new(*range);
    read_delta(path, &mut |item| {
        analysis.take(&item);
        Ok::<_, BackupError>(())
    })?;
    print(options, || analysis.table(), || analysis.csv(), || analysis.json())
}
