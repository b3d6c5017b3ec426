//! The `zodium` program: commands, options, and the wiring of the other crates.

#![forbid(unsafe_code)]

mod cli;
mod logging;
mod progress;
mod serve;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let outcome = match cli.command {
        cli::Command::Serve(options) => serve::run(&options),
        cli::Command::Bench(options) => zodium_bench::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zodium: {error:#}");
            ExitCode::FAILURE
        }
    }
}
