//! `zodium dump`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use zodium_tools::dump::{DataView, DumpOptions, DumpWriter};
use zodium_tools::headers::HeaderWriter;
use zodium_tools::places::FsdumpWriter;
use zodium_tools::{TidRange, walk};

use super::open::{Readable, StorageArguments};
use super::output::Output;
use super::shown::Shown;
use super::storage_name::StorageName;
use super::view::ViewArguments;

/// Options of `zodium dump`.
#[derive(Debug, Args)]
pub(crate) struct DumpArguments {
    #[command(flatten)]
    storage: StorageArguments,

    /// The transactions, TIDMIN..TIDMAX: each 16 hexadecimal digits or a time, and optional
    range: Option<String>,

    /// Print the hashes of data, but not the data
    #[arg(long)]
    hashonly: bool,

    /// Print the pickles of data and extensions as they are, or the operations of them, in the
    /// layout of Python's pickletools: such a dump cannot be loaded
    #[arg(long, value_enum, default_value = "raw", conflicts_with_all = ["json", "format"])]
    pretty: Pretty,

    /// Leave the objects of each transaction in the order of the log, so that `zodium load` makes
    /// the same file; otherwise they are sorted by oid, as zodbtools has them
    #[arg(long)]
    log_order: bool,

    /// Print JSON, without the data: one object a line for each transaction, and for each object
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// The format: that of zodbtools, or that of ZODB's fsdump, which has no data; or all headers
    /// of a data file, as fsdump's class Dumper prints them
    #[arg(long, value_enum, default_value = "zodb", conflicts_with_all = ["hashonly", "log_order"])]
    format: Format,

    #[command(flatten)]
    view: ViewArguments,
}

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Zodb,
    Fsdump,
    FsdumpHeaders,
}

/// How pickles are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Pretty {
    Raw,
    Zpickledis,
}

impl Pretty {
    /// How a dump shows data.
    pub(super) fn view(self, hash_only: bool) -> DataView {
        DataView { hash_only, is_disassembled: self == Pretty::Zpickledis }
    }
}

pub(super) fn run(arguments: &DumpArguments) -> Result<ExitCode> {
    let (name, rest) = arguments.storage.with_rest(arguments.range.as_slice())?;
    let readable = arguments.storage.how().read(&name)?;
    let storage = Arc::clone(&readable.storage);
    let range = arguments.view.range(&rest, &*storage)?;
    if arguments.format == Format::Fsdump {
        let mut writer = FsdumpWriter::new(Output::new()?);
        readable.walk_placed(range, &mut |item, place| writer.write(item, place))?;
        writer.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.format == Format::FsdumpHeaders {
        return dump_headers(&name, &readable, range);
    }
    let DumpArguments { pretty, hashonly, log_order, json, .. } = *arguments;
    let options = DumpOptions { data: pretty.view(hashonly), log_order, json };
    let storage = Shown::new(storage, "dumping");
    let mut writer = DumpWriter::new(Output::new()?, options);
    walk(&storage, range, &mut |item| writer.write(item))?;
    writer.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn dump_headers(name: &StorageName, readable: &Readable, range: TidRange) -> Result<ExitCode> {
    let (StorageName::File(path), Some(_)) = (name, &readable.file) else {
        bail!("only data files have such headers; give the path of one");
    };
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let read_at = |bytes: &mut [u8], position| file.read_exact_at(bytes, position);
    let mut writer = HeaderWriter::new(Output::new()?, &read_at)?;
    readable.walk_placed(range, &mut |item, place| match place {
        Some(place) => writer.write(item, place),
        None => Ok(()),
    })?;
    writer.finish()?;
    Ok(ExitCode::SUCCESS)
}
