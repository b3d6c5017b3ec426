//! `zodium neo ctl`: an operator's commands to a cluster, as `neoctl` has them.
//!
//! Key decision: what is printed is what neoctl prints, byte for byte, so scripts over neoctl work
//! unchanged. `--json` is for new ones.

mod command;
pub(super) mod json;
mod run;
mod text;
mod values;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use zodium_neo::ErrorCode;
use zodium_neo_server::AskError;

use self::command::CtlCommand;
pub(super) use self::text::{cell_letter, sort};
use super::asking::AdminReach;
use crate::streams::{complain, print};

/// Options of `zodium neo ctl`.
#[derive(Debug, Args)]
pub(crate) struct CtlOptions {
    #[command(flatten)]
    reach: AdminReach,

    /// Print JSON in place of neoctl's text
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Option<CtlCommand>,
}

/// What a command says when it has succeeded.
struct Outcome {
    /// What neoctl prints; `None`: not even an empty line.
    text: Option<String>,
    json: serde_json::Value,
}

impl Outcome {
    fn new(text: String, json: serde_json::Value) -> Outcome {
        Outcome { text: Some(text), json }
    }
}

/// Gives a command to a cluster.
pub(super) fn run(options: &CtlOptions) -> Result<ExitCode> {
    let Some(command) = &options.command else {
        let mut command = CtlOptions::augment_args(clap::Command::new("ctl"));
        command = command.bin_name("zodium neo ctl").disable_help_subcommand(true);
        print(&command.render_help().to_string())?;
        return Ok(ExitCode::SUCCESS);
    };
    match options.reach.block_on(async |asking| run::run(command, asking).await)? {
        Ok(outcome) => {
            let text = match options.json {
                true => Some(format!("{:#}", outcome.json)),
                false => outcome.text,
            };
            if let Some(text) = text {
                print(&(text + "\n"))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(AskError::Refused { code: ErrorCode::Denied, text }) => Ok(failed(&text)),
        Err(AskError::Refused { code: ErrorCode::NotReady, text }) => {
            Ok(failed(&format!("ERROR: {text}")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Says why a command was not carried out, in neoctl's words.
fn failed(text: &str) -> ExitCode {
    complain!("{text}");
    ExitCode::FAILURE
}
