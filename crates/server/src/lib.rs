//! The `zodium` program: commands, options, and the wiring of the other crates.
//!
//! Key decision: a library, so that the Python package holds the same program.
//!
//! Exit codes: 0 for success; 1 for an error, and after a SIGHUP, so that a supervisor restarts
//! the server; 2 for a wrong command line. `check` and `recover` exit with 1 for damage, and with
//! 2 also for a file that cannot be read; so do the tools of `tools`. `pack` exits with 3 if it
//! dropped damaged records.

#![forbid(unsafe_code)]
// A failed write must not panic: `streams` prints.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod background;
mod cli;
mod config;
mod configuration_file;
mod error_text;
mod file_size_limit;
mod free_space;
mod healthcheck;
mod host_names;
mod installation;
mod lines;
mod listen_error;
mod logging;
mod monitored_connections;
mod monitored_process;
mod monitored_storage;
mod monitoring;
mod neo;
mod own_certificate;
mod pack;
mod panics;
mod progress;
mod reach;
mod recover;
mod resp;
mod resp_copy;
mod resp_import;
mod resp_monitoring;
mod secrets;
mod serve;
mod setting_arguments;
mod status;
mod streams;
mod supervisor;
mod tools;
mod valkey_conf;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::streams::complain;

/// The version, with the commit if it is known.
const VERSION: &str = env!("ZODIUM_VERSION");

/// Runs a command line, whose first argument is the name that the program was called by.
///
/// For a wrong command line, and for help, the process ends here.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    secrets::leave_the_command_line(&arguments);
    if let Err(error) = file_size_limit::make_an_error() {
        complain!("zodium: a write over the limit of file sizes will end the program: {error}");
    }
    let cli = cli::Cli::of(arguments);
    let cli = cli.unwrap_or_else(|error| cli::improved(error).exit());
    let outcome = match cli.command {
        cli::Command::Serve(options) => serve::run(&options),
        cli::Command::Config(options) => config::run(&options),
        cli::Command::Neo(options) => neo::run(&options),
        cli::Command::Resp(options) => resp::run(&options),
        cli::Command::Pack(options) => pack::run(&options),
        cli::Command::Check(options) => tools::check(&options),
        cli::Command::Recover(options) => recover::run(&options),
        cli::Command::Tool(command) => tools::run(&command),
        cli::Command::Healthcheck(options) => healthcheck::run(&options),
        cli::Command::Status(options) => status::run(&options),
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
            complain!("zodium: {}", error_text::in_words(&error));
            ExitCode::FAILURE
        }
    }
}
