//! Long fuzzing runs, for `make fuzz`, and replays.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use zodium_fuzz::run::{Budget, Tally, replay, run};
use zodium_fuzz::targets::{TARGETS, Target, find};

/// Fuzz decoders with hostile input
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the targets
    List,
    /// Run targets, one after the other
    Run {
        /// Names of targets [default: all]
        targets: Vec<String>,
        /// Seconds to run each target
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Most inputs for each target
        #[arg(long, default_value_t = u64::MAX)]
        inputs: u64,
        /// Seed of the inputs [default: random]
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run a target on the input in a file
    Replay {
        /// Name of the target
        target: String,
        /// File with the input
        file: PathBuf,
    },
}

fn main() -> Result<ExitCode> {
    match Options::parse().command {
        Command::List => {
            TARGETS.iter().for_each(|target| println!("{}", target.name));
            Ok(ExitCode::SUCCESS)
        }
        Command::Run { targets, seconds, inputs, seed } => {
            let time = Duration::from_secs(seconds);
            let budget = Budget { time, inputs, seed: seed.unwrap_or_else(rand::random) };
            run_all(&chosen(&targets)?, budget)
        }
        Command::Replay { target, file } => {
            let input = std::fs::read(&file).with_context(|| format!("{}", file.display()))?;
            Ok(report(named(&target)?, replay(named(&target)?, &input)))
        }
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Target>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    names.iter().map(|name| named(name)).collect()
}

fn named(name: &str) -> Result<&'static Target> {
    find(name).with_context(|| format!("there is no target {name}; `list` names them"))
}

/// Runs each target on a thread with a worker's stack size, named after it in case of an overflow.
fn run_all(targets: &[&'static Target], budget: Budget) -> Result<ExitCode> {
    let mut failed = false;
    for &target in targets {
        let name = format!("{} with --seed {}", target.name, budget.seed);
        println!("{name}");
        let thread = std::thread::Builder::new().name(name).spawn(move || run(target, budget))?;
        match thread.join() {
            Ok(result) => failed |= report(target, result) != ExitCode::SUCCESS,
            Err(_) => failed = true,
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn report(target: &Target, result: Result<Tally, zodium_fuzz::failure::Failure>) -> ExitCode {
    match result {
        Ok(Tally { inputs, seconds, memory_bytes_max }) => {
            let rate = inputs as f64 / seconds.max(1e-9);
            let (name, mib) = (target.name, memory_bytes_max as f64 / f64::from(1 << 20));
            println!(
                "{name}: {inputs} inputs in {seconds:.1} s, {rate:.0}/s, {mib:.1} MiB at most"
            );
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}
