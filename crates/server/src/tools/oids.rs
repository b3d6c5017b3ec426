//! `zodium oids`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use zodium_tools::trace::Trace;
use zodium_tools::{TidRange, parse_oid};

use super::DIFFERENT;
use super::open::StorageArguments;
use super::output::Output;
use super::refs::refuse_compressed;
use super::view::ViewArguments;
use crate::streams::complain;

/// Options of `zodium oids`.
#[derive(Debug, Args)]
pub(crate) struct OidsOptions {
    #[command(flatten)]
    storage: StorageArguments,

    /// The objects: decimal, hexadecimal behind 0x, or 16 hexadecimal digits
    oids: Vec<String>,

    /// Print JSON: one object a line for each message
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArguments,
}

pub(super) fn run(options: &OidsOptions) -> Result<ExitCode> {
    let (name, oids) = options.storage.with_rest(&options.oids)?;
    let oids = oids.iter().map(|oid| parse_oid(oid)).collect::<Result<Vec<_>, _>>()?;
    if oids.is_empty() {
        bail!("give at least one oid");
    }
    let readable = options.storage.how().read(&name)?;
    let range = TidRange::until(options.view.last(&*readable.storage)?);
    let mut trace = Trace::new(oids);
    readable.walk_placed(range, &mut |item, place| {
        trace.take(item, place);
        Ok(())
    })?;
    let mut output = Output::new()?;
    match options.json {
        true => trace.json().iter().try_for_each(|message| output.line(message))?,
        false => output.text(&trace.report())?,
    }
    output.flush()?;
    let unreadable = trace.unreadable();
    if unreadable > 0 {
        complain!("zodium: the references of {unreadable} records cannot be read");
    }
    refuse_compressed(trace.compressed(), "records")?;
    Ok(if unreadable > 0 { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
}
