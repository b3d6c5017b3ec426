//! `zodium info`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use zodium_storage::Read;
use zodium_tools::ToolError;

use super::open::StorageArguments;
use super::output::Output;

/// What is printed without names on the command line.
const NAMES: [&str; 4] = ["name", "size", "head", "last_tid"];

/// Options of `zodium info`.
#[derive(Debug, Args)]
pub(crate) struct InfoOptions {
    #[command(flatten)]
    storage: StorageArguments,

    /// Print only these values, one a line: name, size (bytes), head (the last transaction),
    /// last_tid (the same, for scripts), objects
    names: Vec<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &InfoOptions) -> Result<ExitCode> {
    let (name, wanted) = options.storage.with_rest(&options.names)?;
    let storage = options.storage.how().read(&name)?.storage;
    let mut output = Output::new()?;
    if options.json {
        output.line(json!({
            "name": storage.name(),
            "size": storage.size(),
            "head": storage.last_tid().to_string(),
            "objects": storage.object_count(),
        }))?;
        output.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    for name in if wanted.is_empty() { NAMES.map(str::to_owned).to_vec() } else { wanted.clone() } {
        let value = value(&*storage, &name)?;
        match wanted.is_empty() {
            true => output.line(format_args!("{name}={value}"))?,
            false => output.line(value)?,
        }
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn value(storage: &dyn Read, name: &str) -> Result<String, ToolError> {
    match name {
        "name" => Ok(storage.name()),
        "size" => Ok(storage.size().to_string()),
        "head" | "last_tid" => Ok(storage.last_tid().to_string()),
        "objects" => Ok(storage.object_count().to_string()),
        _ => Err(ToolError::Refused(format!(
            "{name}: there is no such value; there are name, size, head, last_tid and objects"
        ))),
    }
}
