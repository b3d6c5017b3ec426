//! `zodium config`: what a configuration file says, and whether it can be served.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use zodium_configuration::{Configuration, ConfigurationError, Warning};
use zodium_disk::explain_denied;

/// Options of `zodium config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigOptions {
    #[command(subcommand)]
    command: ConfigCommand,
}

/// What to do with a configuration.
#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Say whether a server could start with it, here and now
    ///
    /// Exit code 0 if it could, 1 if it could not: what is wrong is then on standard error.
    Check {
        /// A configuration, ZConfig (zeo.conf) or TOML
        file: PathBuf,
    },
    /// Print what it means, as TOML; what is left out has its default
    Show {
        /// A configuration, ZConfig (zeo.conf) or TOML
        file: PathBuf,
    },
    /// Print a zeo.conf as TOML, whatever it is called
    Convert {
        /// A configuration in ZConfig, as runzeo reads it
        file: PathBuf,
    },
}

/// Does it.
pub(crate) fn run(options: &ConfigOptions) -> Result<ExitCode> {
    match &options.command {
        ConfigCommand::Check { file } => check(file),
        ConfigCommand::Show { file } => print(read(file)?),
        ConfigCommand::Convert { file } => print(zodium_configuration::read_zeo_conf(file)?),
    }
}

/// Reads a configuration in either format.
pub(crate) fn read(file: &Path) -> Result<(Configuration, Vec<Warning>)> {
    zodium_configuration::read(file).map_err(|error| match error {
        ConfigurationError::Unreadable { path, source } => {
            let reason = explain_denied(source, &path);
            anyhow!("{}: cannot be read: {reason}", path.display())
        }
        error => error.into(),
    })
}

fn check(file: &Path) -> Result<ExitCode> {
    let (configuration, warnings) = read(file)?;
    warn(&warnings);
    let problems = configuration.check();
    for problem in &problems {
        eprintln!("{}: {problem}", file.display());
    }
    if !problems.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    let names: Vec<_> = configuration.storages.iter().map(|storage| &*storage.name).collect();
    writeln!(std::io::stdout(), "{}: can be served: {}", file.display(), names.join(", "))?;
    Ok(ExitCode::SUCCESS)
}

fn print((configuration, warnings): (Configuration, Vec<Warning>)) -> Result<ExitCode> {
    warn(&warnings);
    std::io::stdout().write_all(configuration.to_toml()?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn warn(warnings: &[Warning]) {
    for warning in warnings {
        eprintln!("{warning}");
    }
}
