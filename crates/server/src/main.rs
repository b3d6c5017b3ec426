//! The `zodium` binary: its command line and exit code.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    zodium_program::run(std::env::args_os())
}
