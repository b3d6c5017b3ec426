//! The programs that the benchmarks start: this one, and the server that they measure.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::options::ZodiumOptions;

/// The server's program, in the folder of this one.
const ZODIUM: &str = "zodium";

/// This program: it is also the floor, the delay proxy and the native client.
pub(crate) fn own() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find the file of this program")
}

/// The server to measure: the one that the options name, or that beside this program.
pub(crate) fn zodium(options: &ZodiumOptions) -> Result<PathBuf> {
    match &options.zodium {
        Some(named) => Ok(absolute(named)?),
        None => beside(&own()?),
    }
}

/// Name and version, as the server's program prints them.
pub(crate) fn zodium_version(options: &ZodiumOptions) -> Result<String> {
    let program = zodium(options)?;
    let shown = program.display();
    let output = Command::new(&program).arg("--version").output();
    let output = output.with_context(|| format!("cannot start {shown}"))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(
        said.starts_with(ZODIUM),
        "{shown} --version does not print Zodium's version ({}): name the server with --zodium",
        output.status
    );
    Ok(said)
}

/// Makes the path of a program absolute; a bare name is looked up in `PATH` as it is.
pub(crate) fn absolute(program: &Path) -> std::io::Result<PathBuf> {
    match program.components().count() {
        0 | 1 => Ok(program.to_owned()),
        _ => std::path::absolute(program),
    }
}

fn beside(own: &Path) -> Result<PathBuf> {
    let program = own.with_file_name(ZODIUM);
    ensure!(
        program.is_file(),
        "the server to measure is missing: {}. Build it as this program was built, with `cargo \
         build --release -p zodium`, or name another one with --zodium PROGRAM",
        program.display()
    );
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_server_is_named_with_the_command_that_builds_it() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("zodium-bench");
        let error = beside(&own).unwrap_err().to_string();
        let missing = folder.path().join("zodium");
        assert!(error.contains(&missing.display().to_string()), "{error}");
        assert!(error.contains("-p zodium`") && error.contains("--zodium"), "{error}");
        std::fs::write(&missing, "").unwrap();
        assert_eq!(beside(&own).unwrap(), missing);
    }

    #[test]
    fn only_paths_are_made_absolute() {
        assert_eq!(absolute(Path::new("zodium")).unwrap(), Path::new("zodium"));
        assert!(absolute(Path::new("./zodium")).unwrap().is_absolute());
    }

    #[test]
    fn another_program_is_not_taken_for_the_server() {
        let options = ZodiumOptions { zodium: Some(PathBuf::from("true")) };
        let error = zodium_version(&options).unwrap_err().to_string();
        assert!(error.contains("true --version") && error.contains("--zodium"), "{error}");
    }
}
