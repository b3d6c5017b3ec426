//! `zodium catobj`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use zodium_storage::{Access, Load, Read, Revision};
use zodium_tools::dump::{sha1_of, write_object};
use zodium_tools::{ToolError, classes, parse_oid, parse_revision};
use zodium_types::{Oid, Tid};

use super::dump::Pretty;
use super::open::StorageArguments;
use super::output::Output;
use super::view::ViewArguments;

/// Options of `zodium catobj`.
#[derive(Debug, Args)]
pub(crate) struct CatobjOptions {
    #[command(flatten)]
    storage: StorageArguments,

    /// Revisions, as TID:OID in 16 hexadecimal digits each: the newest one up to that transaction.
    /// Or oids, of which the newest one up to --at is meant
    revisions: Vec<String>,

    /// Print the size and the hash, but not the data
    #[arg(long, conflicts_with = "raw")]
    hashonly: bool,

    /// Print the data as they are, or the operations of their pickles, in the layout of Python's
    /// pickletools
    #[arg(long, value_enum, default_value = "raw", conflicts_with_all = ["raw", "json"])]
    pretty: Pretty,

    /// Print nothing but the data of one object
    #[arg(long)]
    raw: bool,

    /// Print JSON, without the data
    #[arg(long, conflicts_with = "raw")]
    json: bool,

    #[command(flatten)]
    view: ViewArguments,
}

pub(super) fn run(options: &CatobjOptions) -> Result<ExitCode> {
    let (name, revisions) = options.storage.with_rest(&options.revisions)?;
    let storage = options.storage.how().read(&name)?.storage;
    let last = options.view.last(&*storage)?;
    let wanted: Vec<(Tid, Oid)> = revisions
        .iter()
        .map(|text| match text.contains(':') {
            true => parse_revision(text),
            false => parse_oid(text).map(|oid| (last, oid)),
        })
        .collect::<Result<_, _>>()?;
    if wanted.is_empty() || (options.raw && wanted.len() > 1) {
        bail!(
            "give {}",
            if options.raw { "one revision: --raw tells no two apart" } else { "a revision" }
        );
    }
    let mut output = Output::new()?;
    for (tid, oid) in wanted {
        let revision = load(&*storage, tid, oid)?;
        let data = &revision.data;
        if options.raw {
            output.write_all(data).map_err(ToolError::Output)?;
        } else if options.json {
            output.line(json!({
                "oid": oid.to_string(),
                "tid": revision.serial.to_string(),
                "class": classes::class_of(data),
                "size": data.len(),
                "sha1": String::from_utf8_lossy(&sha1_of(data)),
            }))?;
        } else {
            write_object(&mut output, oid, data, options.pretty.view(options.hashonly))?;
        }
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn load(storage: &dyn Read, tid: Tid, oid: Oid) -> Result<Revision, ToolError> {
    match storage.load_before(oid, tid.next(), Access::Blocking)? {
        Load::Revision(revision) => Ok(revision),
        Load::NoRevision | Load::Missing | Load::WouldBlock => Err(ToolError::Refused(format!(
            "{tid}:{oid}: there is no such object, or it was deleted by then"
        ))),
    }
}
