//! The `zodium` program: commands, options, and the wiring of the other crates.
//!
//! Key decision: a library, so that the Python package holds the same program.
//!
//! Exit codes: 0 when all went well; 1 when something could not be done, and after a SIGHUP, so
//! that whoever watches the server starts it anew; 2 for a wrong command line. `check` and
//! `recover` have 1 for damage, and 2 also for what cannot be read. `pack` has 3 for what was
//! dropped because it is damaged.

#![forbid(unsafe_code)]

mod check;
mod cli;
mod config;
mod healthcheck;
mod installation;
mod listen_error;
mod logging;
mod monitoring;
mod own_certificate;
mod pack;
mod panics;
mod progress;
mod reach;
mod recover;
mod serve;
mod supervisor;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

/// Does what a command line says; the first argument is the name that the program was called by.
///
/// For a wrong command line, and when only help was asked for, the process ends here.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = cli::Cli::try_parse_from(arguments);
    let cli = cli.unwrap_or_else(|error| cli::improved(error).exit());
    let outcome = match cli.command {
        cli::Command::Serve(options) => serve::run(&options),
        cli::Command::Config(options) => config::run(&options),
        cli::Command::Pack(options) => pack::run(&options),
        cli::Command::Check(options) => check::run(&options),
        cli::Command::Recover(options) => recover::run(&options),
        cli::Command::Healthcheck(options) => {
            healthcheck::run(&options).map(|()| ExitCode::SUCCESS)
        }
        cli::Command::Completions(options) => {
            installation::completions(&options, cli::Cli::command()).map(|()| ExitCode::SUCCESS)
        }
        cli::Command::Man(options) => {
            installation::man(&options, cli::Cli::command()).map(|()| ExitCode::SUCCESS)
        }
    };
    match outcome.map_err(anyhow::Error::downcast::<clap::Error>) {
        Ok(code) => code,
        Err(Ok(usage)) => usage.exit(),
        Err(Err(error)) => {
            eprintln!("zodium: {error:#}");
            ExitCode::FAILURE
        }
    }
}
