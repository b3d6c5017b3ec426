//! `zodium commit`.

use std::io::{self, BufReader, Read as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use jiff::{Timestamp, Zoned};
use serde_json::json;
use zodium_tools::commit::commit;
use zodium_tools::dump::{DumpReader, DumpTransaction};
use zodium_tools::{ToolError, parse_tid};
use zodium_types::{Tid, TransactionStatus};

use super::open::{StorageArguments, Writable};
use super::output::Output;
use super::remote::commit_to_server;
use super::shared::commit_dump_to_shared;

/// Options of `zodium commit`.
#[derive(Debug, Args)]
pub(crate) struct CommitOptions {
    #[command(flatten)]
    storage: StorageArguments,

    /// The transaction that the new one is based on, 16 hexadecimal digits or a time
    at: Option<String>,

    /// Print the tid as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &CommitOptions) -> Result<ExitCode> {
    let (name, rest) = options.storage.with_rest(options.at.as_slice())?;
    let [at] = &rest[..] else {
        let what = "give the storage, and the transaction that the new one is based on";
        return Err(ToolError::Refused(what.to_owned()).into());
    };
    let at = parse_tid(at, &Zoned::now())?;
    // Read and verified as a whole, before anything is written.
    let transaction = read()?;
    let tid = match options.storage.how().write(&name, false)? {
        Writable::Server(client) => commit_to_server(&client, &transaction, at)?,
        Writable::Local(storage) => {
            let committed = match storage.shared() {
                Some(shared) => commit_dump_to_shared(&*storage, shared, transaction, at),
                None => commit(&*storage, transaction, at, now()),
            };
            let closed = storage.close();
            let tid = committed?;
            closed?;
            tid
        }
    };
    let mut output = Output::new()?;
    match options.json {
        true => output.line(json!({ "tid": tid.to_string() }))?,
        false => output.line(tid)?,
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn now() -> Tid {
    Tid::from_unix_nanos(u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(0))
}

fn read() -> Result<DumpTransaction> {
    let mut input = BufReader::new(io::stdin().lock());
    let mut reader = DumpReader::new(&mut input);
    let transaction = reader.rest(Tid::ZERO, TransactionStatus::Normal)?;
    let line = reader.line() + 1;
    match input.read(&mut [0]).map_err(ToolError::Input)? {
        0 => Ok(transaction),
        _ => {
            let what = "something follows the transaction; only one can be committed".to_owned();
            Err(ToolError::NoDump { line, what }.into())
        }
    }
}
