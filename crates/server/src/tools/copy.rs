//! `zodium copy`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use zodium_storage::{LogItem, Read};
use zodium_tools::classes::is_blob;
use zodium_tools::compare::compare;
use zodium_tools::load::{LocalRestore, Restore};
use zodium_tools::{TidRange, walk};
use zodium_types::Tid;

use super::DIFFERENT;
use super::open::{OpenArguments, StorageArguments, Writable};
use super::output::Output;
use super::remote::ServerRestore;
use super::storage_name::StorageName;
use super::view::ViewArguments;
use crate::progress::Progress;

/// Options of `zodium copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyOptions {
    #[command(flatten)]
    from: StorageArguments,

    /// The storage to copy to, of any kind; a missing file is created
    #[arg(required_unless_present = "config")]
    to: Option<String>,

    /// Go on behind the last transaction of a storage that has a part of the copy already
    ///
    /// Also after a copy that was interrupted. What is there is compared first; if it differs,
    /// nothing is copied.
    #[arg(long)]
    incremental: bool,

    /// Do not compare the two storages at the end
    #[arg(long)]
    no_verify: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArguments,
}

pub(super) fn run(options: &CopyOptions) -> Result<ExitCode> {
    let (from, rest) = options.from.with_rest(options.to.as_slice())?;
    let [to] = &rest[..] else { bail!("give the storage to copy from, and the one to copy to") };
    let (how, to) = (options.from.how(), StorageName::parse(to)?);
    let source = how.read(&from)?.storage;
    let last = options.view.last(&*source)?;
    let there = last_tid_of(how, &to)?;
    if there > Tid::ZERO && !options.incremental {
        bail!("the storage to copy to has transactions already: see --incremental");
    }
    if there > Tid::ZERO && !is_prefix(how, &to, &*source, TidRange::until(there))? {
        eprintln!("zodium: what is there already differs from what would be copied");
        return Ok(ExitCode::from(DIFFERENT));
    }
    let range = TidRange { min: Some(there.next()), max: Some(last) };
    let Copied { transactions, blobs } = copy(how, &to, &*source, range)?;
    let range = TidRange { min: (there > Tid::ZERO).then_some(there.next()), max: Some(last) };
    let is_equal = options.no_verify || is_prefix(how, &to, &*source, range)?;
    let mut output = Output::new()?;
    match options.json {
        true => output.line(json!({
            "transactions": transactions,
            "last": last.to_string(),
            "verified": !options.no_verify && is_equal,
        }))?,
        false => output.line(format_args!(
            "copied {transactions} transaction{} up to {last}{}",
            if transactions == 1 { "" } else { "s" },
            if options.no_verify {
                ""
            } else if is_equal {
                ", verified"
            } else {
                ""
            },
        ))?,
    }
    output.flush()?;
    if blobs > 0 {
        eprintln!(
            "zodium: {blobs} records are of blobs, whose files are not copied: copy the blob \
             directory"
        );
    }
    if !is_equal {
        eprintln!("zodium: the copy differs from its source");
        return Ok(ExitCode::from(DIFFERENT));
    }
    Ok(ExitCode::SUCCESS)
}

/// What was copied.
#[derive(Clone, Copy, Default)]
struct Copied {
    transactions: u64,
    /// Records of blobs.
    blobs: u64,
}

/// The last transaction of a storage that need not exist.
fn last_tid_of(how: &OpenArguments, name: &StorageName) -> Result<Tid> {
    if name.is_absent() { Ok(Tid::ZERO) } else { Ok(how.read(name)?.storage.last_tid()) }
}

/// Whether a part of both storages is equal.
fn is_prefix(
    how: &OpenArguments,
    copy: &StorageName,
    source: &dyn Read,
    range: TidRange,
) -> Result<bool> {
    let copy = how.read(copy)?.storage;
    let progress = Progress::of_log(format!("comparing {}", copy.name()), source);
    Ok(compare(source, &*copy, range, &mut |bytes| progress.advance(bytes))?.is_none())
}

/// Copies a range.
fn copy(
    how: &OpenArguments,
    to: &StorageName,
    source: &dyn Read,
    range: TidRange,
) -> Result<Copied> {
    match how.write(to, true)? {
        Writable::Server(client) => copy_into(Box::new(ServerRestore::new(client)), source, range),
        Writable::Local(storage) => {
            let copied = copy_into(Box::new(LocalRestore::new(&*storage)), source, range);
            // What was copied before an error stays, and a later copy goes on from there.
            let closed = storage.close();
            let copied = copied?;
            closed?;
            Ok(copied)
        }
    }
}

fn copy_into(
    mut target: Box<dyn Restore + '_>,
    source: &dyn Read,
    range: TidRange,
) -> Result<Copied> {
    let progress = Progress::of_log(format!("copying {}", source.name()), source);
    let mut done = Copied::default();
    let copied = walk(source, range, &mut |item| {
        match item {
            LogItem::Transaction { .. } => done.transactions += 1,
            LogItem::Record { data, .. } => {
                done.blobs += u64::from(data.is_some_and(is_blob));
                progress.advance(data.map_or(0, <[u8]>::len));
            }
            LogItem::Skipped => {}
        }
        target.apply(item)
    });
    if copied.is_err() {
        target.forget_unfinished();
    }
    let finished = target.finish();
    copied?;
    finished?;
    Ok(done)
}
