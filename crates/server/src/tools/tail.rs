//! `zodium tail`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use zodium_filestorage::{FileStorage, FileStorageError, PlacedTransaction};
use zodium_storage::{LogItem, Read, StorageError};
use zodium_tools::places::{PiecewiseSha1, Place, TailEntry};
use zodium_tools::text::{bytes_repr, time_of};
use zodium_tools::{TidRange, ToolError};
use zodium_types::Tid;

use super::open::{Readable, StorageArguments};
use super::output::Output;
use super::view::ViewArguments;

/// A second, in the units of tids.
const SECOND: u64 = (1 << 32) / 60;

/// Options of `zodium tail`.
#[derive(Debug, Args)]
pub(crate) struct TailOptions {
    #[command(flatten)]
    storage: StorageArguments,

    /// How many transactions to print
    #[arg(short = 'n', long = "count", value_name = "N", default_value = "10")]
    count: usize,

    /// Print JSON: one object a line for each transaction
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArguments,
}

pub(super) fn run(options: &TailOptions) -> Result<ExitCode> {
    let readable = options.storage.how().read(&options.storage.alone()?)?;
    let last = options.view.last(&*readable.storage)?;
    let mut output = Output::new()?;
    match &readable.file {
        Some(file) => print_file(file, last, options, &mut output)?,
        None => print_log(&readable, last, options, &mut output)?,
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print_file(
    file: &FileStorage,
    last: Tid,
    options: &TailOptions,
    output: &mut Output,
) -> Result<()> {
    let mut newest = file.reader().newest();
    let mut left = options.count;
    while left > 0 {
        let Some(placed) = newest.step().map_err(failed)? else { break };
        if placed.transaction.tid > last {
            continue;
        }
        left -= 1;
        let mut hash = PiecewiseSha1::default();
        newest.records_bytes(&placed, |piece| hash.add(piece)).map_err(failed)?;
        let PlacedTransaction { transaction, place, header_bytes } = placed;
        let entry = TailEntry {
            tid: transaction.tid,
            user: &transaction.metadata.user,
            description: &transaction.metadata.description,
            place: Place { position: place.position, bytes: place.bytes },
            header_bytes,
            hash: hash.finish(),
        };
        match options.json {
            true => output.line(json!({
                "tid": entry.tid.to_string(),
                "time": time_of(entry.tid),
                "user": String::from_utf8_lossy(entry.user),
                "description": String::from_utf8_lossy(entry.description),
                "length": entry.place.bytes,
                "offset": entry.place.position,
                "header_bytes": entry.header_bytes,
                "sha1": entry.hash,
            }))?,
            false => output.text(&entry.text())?,
        }
    }
    Ok(())
}

fn failed(error: FileStorageError) -> ToolError {
    StorageError::from(error).into()
}

/// A transaction of a storage that is no file.
struct Entry {
    tid: Tid,
    user: Vec<u8>,
    description: Vec<u8>,
    records: u64,
}

/// Without positions and hashes, which such a storage does not have.
fn print_log(
    readable: &Readable,
    last: Tid,
    options: &TailOptions,
    output: &mut Output,
) -> Result<()> {
    let Some(first) = first_of_newest(&*readable.storage, last, options.count)? else {
        return Ok(());
    };
    let shown = entries(readable, TidRange { min: Some(first), max: Some(last) })?;
    for entry in shown.iter().rev().take(options.count) {
        let Entry { tid, user, description, records } = entry;
        let time = time_of(*tid);
        match options.json {
            true => output.line(json!({
                "tid": tid.to_string(),
                "time": time,
                "user": String::from_utf8_lossy(user),
                "description": String::from_utf8_lossy(description),
                "records": records,
            }))?,
            false => output.text(&format!(
                "{time}: tid={tid}\nuser={} description={} records={records}\n\n",
                bytes_repr(user),
                bytes_repr(description),
            ))?,
        }
    }
    Ok(())
}

/// The first of the newest `count` transactions up to `last`; `None` without any.
///
/// A log is read forwards only. So this looks at the last transaction, at the second before it, the
/// eight seconds before that, and so on, without the records.
fn first_of_newest(
    storage: &dyn Read,
    last: Tid,
    count: usize,
) -> Result<Option<Tid>, StorageError> {
    let (mut end, mut span, mut missing, mut first) = (last, 0, count, None);
    while missing > 0 {
        let start = Tid(end.0.saturating_sub(span));
        let mut cursor = storage.iterate(Some(start), Some(end))?;
        let mut found = Vec::new();
        while let Some(transaction) = cursor.step()? {
            found.push(transaction.tid);
        }
        let newest = found.split_off(found.len().saturating_sub(missing));
        missing -= newest.len();
        first = newest.first().copied().or(first);
        if start == Tid::ZERO {
            break;
        }
        (end, span) = (Tid(start.0 - 1), span.saturating_mul(8).max(SECOND));
    }
    Ok(first)
}

fn entries(readable: &Readable, range: TidRange) -> Result<Vec<Entry>, ToolError> {
    let mut entries: Vec<Entry> = Vec::new();
    zodium_tools::walk(&*readable.storage, range, &mut |item| {
        match item {
            LogItem::Transaction { tid, user, description, .. } => {
                let (user, description) = (user.to_vec(), description.to_vec());
                entries.push(Entry { tid, user, description, records: 0 });
            }
            LogItem::Record { .. } => {
                if let Some(last) = entries.last_mut() {
                    last.records += 1;
                }
            }
            LogItem::Skipped => {}
        }
        Ok(())
    })?;
    Ok(entries)
}
