//! Repository chores: `cargo run -q -p xtask -- tidy` checks the repository's own rules, `mutants`
//! checks that tests notice known mistakes.
//!
//! What a compiler, rustfmt or clippy can check is theirs; the rest is here. `tidy` takes a
//! second, so that it runs before everything else.

#![forbid(unsafe_code)]

mod mutants;
mod paths;
mod repository;
mod rules;
mod source;
mod syntax;
mod tidy;
mod violation;

use std::process::ExitCode;

use clap::Parser;

/// Repository chores.
#[derive(Parser)]
#[command(bin_name = "cargo run -q -p xtask --")]
enum Chore {
    /// Check the repository's own rules.
    Tidy,
    /// Apply the mutations of tests/mutants/*.toml, one at a time, and run the tests that must
    /// notice each.
    Mutants(mutants::Options),
}

fn main() -> anyhow::Result<ExitCode> {
    match Chore::parse() {
        Chore::Tidy => tidy::run(),
        Chore::Mutants(options) => mutants::run(&options),
    }
}
