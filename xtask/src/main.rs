//! Repository chores: `cargo run -q -p xtask -- tidy` checks the repository's own rules.
//!
//! What a compiler, rustfmt or clippy can check is theirs; the rest is here, and takes a second,
//! so that it runs before everything else.

#![forbid(unsafe_code)]

mod repository;
mod rules;
mod source;
mod syntax;
mod tidy;
mod violation;

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::run(),
        _ => {
            eprintln!("usage: cargo run -q -p xtask -- tidy");
            Ok(ExitCode::from(2))
        }
    }
}
