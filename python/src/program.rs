//! The `zodium` command, run in the process of a Python interpreter.

use std::ffi::OsString;
use std::process::ExitCode;

use pyo3::prelude::*;

/// Runs a command line, which includes the program's name, and returns the exit code.
#[pyfunction]
pub(crate) fn run_program(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    let code = py.detach(|| zodium_program::run(arguments));
    // An `ExitCode` can be compared, but not converted to a number.
    (0..=u8::MAX).find(|&number| ExitCode::from(number) == code).unwrap_or(u8::MAX)
}
