//! `zodium refs`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use zodium_pickle::is_compressed;
use zodium_tools::classes::class_of;
use zodium_tools::references::{CurrentObjects, Missing, Referrer};
use zodium_tools::text::{id_repr, time_of};
use zodium_tools::{ToolError, parse_oid};
use zodium_types::Oid;

use super::DIFFERENT;
use super::open::StorageArguments;
use super::output::Output;
use super::shown::Shown;
use super::view::ViewArguments;
use crate::streams::complain;

/// Options of `zodium refs`.
#[derive(Debug, Args)]
pub(crate) struct RefsOptions {
    #[command(flatten)]
    storage: StorageArguments,

    /// Print the objects that refer to this one, instead of the references that lead nowhere
    #[arg(long, value_name = "OID")]
    to: Option<String>,

    /// Print the shortest way to it from the root too
    #[arg(long, requires = "to")]
    path: bool,

    /// Print JSON: one object a line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArguments,
}

pub(super) fn run(options: &RefsOptions) -> Result<ExitCode> {
    let name = options.storage.alone()?;
    let to = options.to.as_deref().map(parse_oid).transpose()?;
    let storage = options.storage.how().read(&name)?.storage;
    let storage = Shown::new(storage, "reading the references of");
    let last = options.view.last(&storage)?;
    let objects = CurrentObjects::of(&storage, last)?;
    let mut output = Output::new()?;
    let mut compressed = 0;
    let is_whole = match to {
        Some(to) => print_referrers(objects, to, options, &mut compressed, &mut output)?,
        None => print_dangling(&objects, options.json, &mut compressed, &mut output)?,
    };
    output.flush()?;
    refuse_compressed(compressed, "objects")?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

/// Refuses data whose references cannot be known.
pub(super) fn refuse_compressed(count: u64, what: &str) -> Result<()> {
    if count > 0 {
        bail!(
            "{count} {what} are compressed by zc.zlibstorage. That is no damage, but only their \
             clients can read their references"
        );
    }
    Ok(())
}

/// Prints the objects with references that lead nowhere; whether there are none. Those with
/// compressed data are counted.
fn print_dangling(
    objects: &CurrentObjects<'_>,
    json: bool,
    compressed: &mut u64,
    output: &mut Output,
) -> Result<bool, ToolError> {
    let mut is_whole = true;
    objects.each(&mut |referrer| {
        if !referrer.is_read {
            if is_compressed(referrer.data) {
                *compressed += 1;
                return Ok(());
            }
            is_whole = false;
            let (oid, tid) = (referrer.oid, referrer.tid);
            return output.tool_line(match json {
                true => unreadable_json(&referrer),
                false => format!(
                    "oid {:#x} {}\nlast updated: {}, tid={:#x}\nfailed to load: its data are no \
                     pickles\n",
                    oid.0,
                    class_of(referrer.data),
                    time_of(tid),
                    tid.0
                ),
            });
        }
        let missing = |to: &Oid| Some((*to, objects.missing(*to)?));
        let missing: Vec<_> = referrer.references.iter().filter_map(missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        is_whole = false;
        match json {
            true => missing
                .iter()
                .try_for_each(|missing| output.tool_line(dangling_json(&referrer, *missing))),
            false => output.tool_line(dangling_text(&referrer, &missing)),
        }
    })?;
    Ok(is_whole)
}

fn dangling_text(referrer: &Referrer<'_>, missing: &[(Oid, Missing)]) -> String {
    let (oid, tid, class) = (referrer.oid, referrer.tid, class_of(referrer.data));
    let plural = if missing.len() > 1 { "s" } else { "" };
    let mut text = format!(
        "oid {:#x} {class}\nlast updated: {}, tid={:#x}\nrefers to invalid object{plural}:\n",
        oid.0,
        time_of(tid),
        tid.0
    );
    for (to, why) in missing {
        // A reference names no class that could be told without an import.
        text += &format!("\toid {} {}: '<unknown>'\n", id_repr(to.0), why.in_words());
    }
    text
}

fn dangling_json(referrer: &Referrer<'_>, (to, why): (Oid, Missing)) -> String {
    json!({
        "oid": referrer.oid.to_string(),
        "tid": referrer.tid.to_string(),
        "class": class_of(referrer.data),
        "to": to.to_string(),
        "reason": why.in_words(),
    })
    .to_string()
}

fn unreadable_json(referrer: &Referrer<'_>) -> String {
    json!({
        "oid": referrer.oid.to_string(),
        "tid": referrer.tid.to_string(),
        "class": class_of(referrer.data),
        "reason": "failed to load",
    })
    .to_string()
}

/// Prints the objects that refer to one, and the way to it; whether it is there, and all references
/// could be read. Objects with compressed data are counted.
fn print_referrers(
    objects: CurrentObjects<'_>,
    to: Oid,
    options: &RefsOptions,
    compressed: &mut u64,
    output: &mut Output,
) -> Result<bool> {
    let missing = objects.missing(to);
    let (mut count, mut unread) = (0_u64, 0_u64);
    objects.each(&mut |referrer| {
        match is_compressed(referrer.data) {
            true => *compressed += 1,
            false => unread += u64::from(!referrer.is_read),
        }
        if !referrer.references.contains(&to) {
            return Ok(());
        }
        count += 1;
        let (oid, tid, class) = (referrer.oid, referrer.tid, class_of(referrer.data));
        output.tool_line(match options.json {
            true => json!({ "referrer": oid.to_string(), "tid": tid.to_string(), "class": class })
                .to_string(),
            false => format!("{oid} {class}, last updated {} by {tid}", time_of(tid)),
        })
    })?;
    if options.path {
        print_path(objects, to, options.json, output)?;
    }
    if let Some(missing) = missing {
        complain!("zodium: object {to}: {}", missing.in_words());
        if count + unread + *compressed == 0 && missing == Missing::Absent {
            bail!("and no object refers to it");
        }
    }
    if unread > 0 {
        complain!(
            "zodium: {unread} objects cannot be read, and may refer to it too: `zodium refs` \
             without --to names them"
        );
    }
    Ok(missing.is_none() && unread == 0)
}

fn print_path(objects: CurrentObjects<'_>, to: Oid, json: bool, output: &mut Output) -> Result<()> {
    let path = objects.into_path(to)?;
    if json {
        let steps = path.map(|path| {
            let step =
                |(oid, class): &(Oid, String)| json!({ "oid": oid.to_string(), "class": class });
            path.iter().map(step).collect::<Vec<_>>()
        });
        return output.line(json!({ "path": steps }));
    }
    match path {
        None => output.line(format_args!("no path from the root to {to}")),
        Some(path) => {
            output.line("path from the root:")?;
            path.iter().try_for_each(|(oid, class)| output.line(format_args!("  {oid} {class}")))
        }
    }
}
