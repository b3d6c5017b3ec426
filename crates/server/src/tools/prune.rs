//! `zodium prune`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use bytesize::ByteSize;
use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use zodium_backup::repository::{KeepRules, Pruned, is_repository, prune};
use zodium_backup::repozo::is_repozo;

use super::output::Output;
use super::repositories::{RepositoryArguments, folder_of};
use crate::pack::days;

const SECONDS_PER_DAY: f64 = 24.0 * 60.0 * 60.0;

/// Options of `zodium prune`.
#[derive(Debug, Args)]
pub(crate) struct PruneOptions {
    /// The repository: a folder, or the URL of an object store
    #[arg(value_name = "REPOSITORY")]
    name: String,

    #[command(flatten)]
    repository: RepositoryArguments,

    /// Keep the newest N restore points
    #[arg(long, value_name = "N", default_value = "0")]
    keep_last: usize,

    /// Keep the newest restore point of each of N days
    #[arg(long, value_name = "N", default_value = "0")]
    keep_daily: usize,

    /// Keep all restore points of the last N days before the newest one
    #[arg(long, value_name = "DAYS", default_value = "0", value_parser = days)]
    keep_within: f64,

    /// Remove nothing
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &PruneOptions) -> Result<ExitCode> {
    let rules = KeepRules {
        last: options.keep_last,
        daily: options.keep_daily,
        within_seconds: (options.keep_within * SECONDS_PER_DAY) as i64,
    };
    if rules == KeepRules::default() {
        bail!("say what to keep: --keep-last, --keep-daily or --keep-within");
    }
    let folder = folder_of(&options.name);
    if folder.is_some_and(|folder| is_repozo(folder) && !is_repository(folder)) {
        bail!(
            "{}: a repozo folder; prune is for our format. `zodium backup -F -k` makes a full \
             backup there, and removes older ones",
            options.name
        );
    }
    let now = Timestamp::now().as_second();
    let repository = options.repository.open(&options.name)?;
    let Pruned { kept, removed, freed_bytes } = prune(&repository, &rules, now, options.dry_run)?;
    let mut output = Output::new()?;
    match options.json {
        true => {
            output.line(json!({ "kept": kept, "removed": removed, "freed_bytes": freed_bytes }))?;
        }
        false => output.line(format_args!(
            "{removed} restore points {}, {kept} kept, {} freed",
            if options.dry_run { "would be removed" } else { "removed" },
            ByteSize(freed_bytes)
        ))?,
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}
