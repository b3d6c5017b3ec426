//! `zodium neo status`: how a cluster is, for people.

mod diagnosis;
mod drawing;
mod picture;
#[cfg(test)]
mod tests;
mod words;

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;
use serde_json::json;
use zodium_neo::ErrorCode;
use zodium_neo_server::AskError;

use self::diagnosis::diagnose;
use self::picture::Picture;
use super::asking::AdminReach;
use crate::streams::print;

/// The exit code when something is not well.
const NOT_WELL: u8 = 3;
/// Clears a terminal, and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Options of `zodium neo status`.
#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    reach: AdminReach,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Show it again every N seconds, until SIGINT
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3600),
    )]
    watch: Option<u64>,
}

/// Shows how a cluster is.
pub(super) fn run(options: &StatusOptions) -> Result<ExitCode> {
    let Some(seconds) = options.watch else { return show(options) };
    loop {
        // An admin that is being restarted is no reason to stop watching.
        let text = match look(options) {
            Ok((text, _)) => text,
            Err(error) => format!("zodium: {error:#}\n"),
        };
        let clear = if stdout().is_terminal() { CLEAR } else { "" };
        if !print(&format!("{clear}{text}\n"))? {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

fn show(options: &StatusOptions) -> Result<ExitCode> {
    let (text, is_well) = look(options)?;
    print(&text)?;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

/// What there is to show, and whether all is well.
fn look(options: &StatusOptions) -> Result<(String, bool)> {
    let asked = options.reach.block_on(Picture::take)?;
    let picture = match asked {
        Ok(picture) => picture,
        Err(AskError::Refused { code: ErrorCode::NotReady, text }) => {
            return Ok((without_master(options, &text), false));
        }
        Err(error) => return Err(error.into()),
    };
    let advice = diagnose(&picture);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let text = match options.json {
        true => format!("{:#}\n", picture.to_json(&advice)),
        false => drawing::draw(&picture, &advice, now),
    };
    Ok((text, advice.is_empty()))
}

fn without_master(options: &StatusOptions, reason: &str) -> String {
    let admin = options.reach.shown();
    let advice = "start a master, or look into the logs of the masters and of the admin: they \
                  must have the same name of the cluster, addresses of masters, and TLS or none";
    if options.json {
        let json = json!({ "state": null, "is_well": false, "advice": [reason, advice] });
        return format!("{json:#}\n");
    }
    let sentence =
        words::wrapped(&format!("The admin at {admin} has no primary master: {advice}."), 0);
    format!("{sentence}\n")
}
