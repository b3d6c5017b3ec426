//! The `zodium` command: the program of the same name, in the process of a Python interpreter.

use std::ffi::OsString;
use std::process::ExitCode;

use pyo3::prelude::*;

/// Does what a command line says, the program's name first, and gives the exit code.
#[pyfunction]
pub(crate) fn run_program(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    let code = py.detach(|| zodium_program::run(arguments));
    // Exit codes can be compared, not read.
    (0..=u8::MAX).find(|&number| ExitCode::from(number) == code).unwrap_or(u8::MAX)
}
