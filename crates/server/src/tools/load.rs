//! `zodium load`.

use std::collections::VecDeque;
use std::io::{self, BufReader};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use zodium_tools::ToolError;
use zodium_tools::dump::DumpReader;
use zodium_tools::load::{LocalRestore, Restore, restore};
use zodium_types::Tid;

use super::open::{StorageArguments, Writable};
use super::output::Output;
use super::remote::ServerRestore;

/// Bytes of the dump that are read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Options of `zodium load`.
#[derive(Debug, Args)]
pub(crate) struct LoadOptions {
    #[command(flatten)]
    storage: StorageArguments,

    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,

    /// Print JSON: one object a line for each transaction
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &LoadOptions) -> Result<ExitCode> {
    let name = options.storage.alone()?;
    let mut output = Output::new()?;
    match options.storage.how().write(&name, true)? {
        Writable::Server(client) => {
            load(Box::new(ServerRestore::new(client)), &mut output, options)?;
        }
        Writable::Local(storage) => {
            let target = Box::new(LocalRestore::new(&*storage));
            let loaded = load(target, &mut output, options);
            // What was loaded before an error stays, and its index is saved.
            let closed = storage.close();
            loaded?;
            closed?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn load(
    mut target: Box<dyn Restore + '_>,
    output: &mut Output,
    options: &LoadOptions,
) -> Result<()> {
    let mut reader = DumpReader::new(BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock()));
    let mut waiting = VecDeque::new();
    let outcome =
        restore_all(&mut *target, &mut reader, &mut waiting, |tid| print(tid, output, options));
    // Those before a broken one are whole, and are kept.
    let last = target.finish();
    if let Ok(last) = &last {
        for tid in waiting.into_iter().filter(|tid| tid <= last) {
            print(tid, output, options)?;
        }
    }
    output.flush()?;
    outcome?;
    last?;
    Ok(())
}

/// Prints a tid. If the reader of the output has ended, the load goes on without it.
fn print(tid: Tid, output: &mut Output, options: &LoadOptions) -> Result<()> {
    let printed = match (options.quiet, options.json) {
        (true, _) => Ok(()),
        (false, true) => output.line(json!({ "tid": tid.to_string() })),
        (false, false) => output.line(tid),
    };
    let is_closed =
        |error: &anyhow::Error| error.downcast_ref().is_some_and(ToolError::is_closed_pipe);
    match printed {
        Err(error) if is_closed(&error) => Ok(()),
        printed => printed,
    }
}

/// Restores until the end of the dump, or an error, and tells `durable` of each transaction as soon
/// as it is. `waiting` are those of which that is not known yet.
fn restore_all<R: io::BufRead>(
    target: &mut dyn Restore,
    reader: &mut DumpReader<R>,
    waiting: &mut VecDeque<Tid>,
    mut durable: impl FnMut(Tid) -> Result<()>,
) -> Result<()> {
    while let Some(transaction) = reader.transaction()? {
        let restored = restore(target, &transaction);
        restored.map_err(|error| in_transaction(&error, transaction.tid))?;
        waiting.push_back(transaction.tid);
        while let Some(tid) = waiting.pop_front_if(|tid| *tid <= target.durable_tid()) {
            durable(tid)?;
        }
    }
    Ok(())
}

fn in_transaction(error: &ToolError, tid: Tid) -> ToolError {
    ToolError::Refused(format!("transaction {tid} cannot be written: {error}"))
}
