//! The client programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::job::{Job, Line};
use crate::child;
use crate::interrupt::Interrupt;
use crate::programs::{absolute, own};

/// The driver of both Python clients.
const DRIVER: &str = include_str!("driver.py");

/// Prints the versions of the Python packages, or what is missing.
const VERSIONS: &str = "\
import platform, sys
from importlib.metadata import PackageNotFoundError, version
told, missing = [], []
for name in 'zodium', 'ZEO':
    try:
        __import__(name)
    except ImportError as error:
        missing.append(f'{name} ({error})')
        continue
    try:
        told.append(f'{name} {version(name)}')
    except PackageNotFoundError:
        told.append(f'{name} as it lies in a folder')
if missing:
    sys.exit(' and '.join(missing))
print(', '.join(told), 'on Python', platform.python_version())
";

/// A client program, started anew for each case.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
}

/// All client programs.
pub(super) fn all(python: &Path) -> Result<Vec<Program>> {
    let script: &[&str] = &["-c", DRIVER];
    let (python, this) = (absolute(python)?, own()?);
    let of_python = |name| Program { name, program: python.clone(), arguments: script };
    let native = Program { name: "native", program: this, arguments: &["client-driver"] };
    Ok(vec![of_python("zodium"), of_python("zeo"), native])
}

/// Versions of the Python clients; fails if one is missing.
pub(super) fn versions(python: &Path) -> Result<String> {
    let shown = python.display();
    let output = Command::new(python).args(["-c", VERSIONS]).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {shown}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{shown} lacks {}: install both there, with `make wheel` and `{shown} -m pip install \
         target/wheels/zodium-*.whl ZEO msgpack`, or let `make bench BENCH_ONLY=client` do it",
        said.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Program {
    /// Runs a case in a new process.
    pub(super) fn run(&self, job: &Job, interrupt: &Interrupt) -> Result<Vec<Line>> {
        let mut command = Command::new(&self.program);
        command.args(self.arguments).arg(serde_json::to_string(job)?);
        let output = child::output(&mut command, interrupt)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "it ended with {}: {}", output.status, said.trim());
        let told = String::from_utf8(output.stdout)?;
        let lines = told.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        lines.with_context(|| format!("not the results of a client: {told}"))
    }
}
