//! `zodium stats`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use zodium_tools::stats::Stats;

use super::open::StorageArguments;
use super::output::Output;
use super::shown::Shown;
use super::view::ViewArguments;

/// Options of `zodium stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsOptions {
    #[command(flatten)]
    storage: StorageArguments,

    /// Print each object too: oid, bytes, class
    #[arg(long, short)]
    verbose: bool,

    /// Print JSON: one object a line for each class
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArguments,
}

pub(super) fn run(options: &StatsOptions) -> Result<ExitCode> {
    let storage = options.storage.how().read(&options.storage.alone()?)?.storage;
    let storage = Shown::new(storage, "counting the objects of");
    let stats = Stats::of(&storage, options.view.last(&storage)?)?;
    let mut output = Output::new()?;
    if options.verbose {
        let mut outcome = Ok(());
        stats.each(|oid, bytes, class| {
            if outcome.is_ok() {
                outcome = match options.json {
                    true => output.line(json!({
                        "oid": oid.to_string(), "bytes": bytes, "class": class,
                    })),
                    false => output.line(format_args!("{:8} {bytes:5} {class}", oid.0)),
                };
            }
        });
        outcome?;
    }
    if !options.json {
        output.line("Totals per object class:")?;
    }
    for total in stats.totals() {
        let (class, objects, bytes) = (total.class, total.objects, total.bytes);
        match options.json {
            true => output.line(json!({ "class": class, "objects": objects, "bytes": bytes }))?,
            false => output.line(format_args!("{objects:8} {bytes:8} {class}"))?,
        }
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}
