//! `zodium cmp`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use zodium_tools::compare::{Difference, compare};

use super::DIFFERENT;
use super::open::StorageArguments;
use super::output::Output;
use super::storage_name::StorageName;
use super::view::ViewArguments;
use crate::progress::Progress;

/// Options of `zodium cmp`.
#[derive(Debug, Args)]
pub(crate) struct CompareOptions {
    #[command(flatten)]
    first: StorageArguments,

    /// The other storage
    #[arg(required_unless_present = "config")]
    second: Option<String>,

    /// The transactions to compare, TIDMIN..TIDMAX
    range: Option<String>,

    /// Print the result
    #[arg(long, short)]
    verbose: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArguments,
}

pub(super) fn run(options: &CompareOptions) -> Result<ExitCode> {
    let rest: Vec<String> = options.second.iter().chain(&options.range).cloned().collect();
    let (first, rest) = options.first.with_rest(&rest)?;
    let Some((second, rest)) = rest.split_first() else {
        anyhow::bail!("give two storages to compare");
    };
    let first = options.first.how().read(&first)?.storage;
    let second = options.first.how().read(&StorageName::parse(second)?)?.storage;
    let ranges = (options.view.range(rest, &*first)?, options.view.range(rest, &*second)?);
    // What either of them has counts.
    let range = ranges.0.joined(ranges.1);
    let progress = Progress::of_log(format!("comparing {}", first.name()), &*first);
    let found = compare(&*first, &*second, range, &mut |bytes| progress.advance(bytes))?;
    drop(progress);
    let mut output = Output::new()?;
    if options.json {
        output.line(match found {
            None => json!({ "equal": true }),
            Some(Difference::Missing { tid, present_in }) => {
                json!({ "equal": false, "tid": tid.to_string(), "present_in": present_in })
            }
            Some(Difference::Different { tid }) => {
                json!({ "equal": false, "tid": tid.to_string() })
            }
        })?;
    } else if options.verbose {
        match found {
            None => output.line("equal")?,
            Some(Difference::Missing { tid, present_in }) => output.line(format_args!(
                "not-equal: tid {tid} present in stor{present_in} but not in stor{}",
                3 - present_in
            ))?,
            Some(Difference::Different { tid }) => {
                output.line(format_args!("not-equal: transaction {tid} is different"))?;
            }
        }
    }
    output.flush()?;
    Ok(if found.is_none() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}
