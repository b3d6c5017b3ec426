//! `zodium analyze`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use zodium_tools::analyze::Analysis;

use super::open::StorageArguments;
use super::output::Output;
use super::shown::Shown;
use super::view::ViewArguments;

/// Options of `zodium analyze`.
#[derive(Debug, Args)]
pub(crate) struct AnalyzeOptions {
    #[command(flatten)]
    storage: StorageArguments,

    /// The transactions, TIDMIN..TIDMAX
    range: Option<String>,

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
    let storage = options.storage.how().read(&name)?.storage;
    let storage = Shown::new(storage, "analyzing");
    let range = options.view.range(&rest, &storage)?;
    let analysis = Analysis::of(&storage, range, &mut |_| ())?;
    let mut output = Output::new()?;
    match (options.csv, options.json) {
        (true, _) => output.text(&analysis.csv())?,
        (_, true) => output.line(analysis.json())?,
        _ => output.text(&analysis.table())?,
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}
