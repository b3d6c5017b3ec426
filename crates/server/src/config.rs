//! `zodium config`: shows, checks and converts a configuration file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use zodium_configuration::{Configuration, NodeAdapter, Problem, StorageKind, Warning};
use zodium_sql::MariaAddress;

use crate::configuration_file::{explained, read};
use crate::streams::{complain, print};
use crate::{host_names, neo, serve, valkey_conf};

/// Options of `zodium config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigOptions {
    #[command(subcommand)]
    command: ConfigCommand,
}

/// The commands for a configuration.
#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check whether a server could start with it on this machine
    ///
    /// Exit code 0 if it could; 1 if not, with the reasons on standard error.
    Check {
        /// A configuration, ZConfig (zeo.conf) or TOML
        file: PathBuf,

        /// Do not look up host names, as for a configuration of another machine
        #[arg(long)]
        no_lookup: bool,
    },
    /// Print it as TOML, without settings that have their defaults
    Show {
        /// A configuration, ZConfig (zeo.conf) or TOML
        file: PathBuf,
    },
    /// Print a zeo.conf as TOML, whatever the file is called
    Convert {
        /// A configuration in ZConfig, as runzeo reads it
        file: PathBuf,
    },
}

/// Runs the command.
pub(crate) fn run(options: &ConfigOptions) -> Result<ExitCode> {
    match &options.command {
        ConfigCommand::Check { file, no_lookup } => check(file, *no_lookup),
        ConfigCommand::Show { file } => {
            let (mut configuration, warnings) = read(file)?;
            if hide_passwords(&mut configuration) {
                let variable = MariaAddress::PASSWORD_VARIABLE;
                complain!("a password of a database is not shown: give it in {variable}");
            }
            show((configuration, warnings))
        }
        ConfigCommand::Convert { file } => match zodium_configuration::read_zeo_conf(file) {
            Err(_) if zodium_configuration::is_toml(file) => {
                let file = file.display();
                bail!("{file} is TOML already: `zodium config show {file}` prints it")
            }
            converted => show(converted.map_err(explained)?),
        },
    }
}

fn check(file: &Path, no_lookup: bool) -> Result<ExitCode> {
    let (configuration, warnings) = read(file)?;
    warn(&warnings);
    if are_problems(file, &configuration.check()) {
        return Ok(ExitCode::FAILURE);
    }
    let nodes = [
        ("storage", configuration.neo_storage.is_some()),
        ("admin", configuration.neo_admin.is_some()),
        ("master", configuration.neo_master.is_some()),
    ];
    let node = nodes.iter().find(|(_, is_configured)| *is_configured);
    let refused = match node {
        Some(_) => neo::check_places(&configuration),
        None => serve::check_urls(&configuration)
            .and_then(|()| valkey_conf::check(&configuration.server)),
    };
    if let Err(error) = refused {
        complain!("{}: {error:#}", file.display());
        return Ok(ExitCode::FAILURE);
    }
    let has_sockets = host_names::are_sockets_given();
    if !no_lookup && are_problems(file, &host_names::problems(&configuration, has_sockets)) {
        return Ok(ExitCode::FAILURE);
    }
    if let Some((node, _)) = node {
        let file = file.display();
        print(&format!("{file}: can be run: zodium neo {node} -C {file}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let names: Vec<_> = configuration.storages.iter().map(|storage| &*storage.name).collect();
    print(&format!("{}: can be served: {}\n", file.display(), names.join(", ")))?;
    Ok(ExitCode::SUCCESS)
}

/// Complains about the problems of a configuration; whether there are any.
fn are_problems(file: &Path, problems: &[Problem]) -> bool {
    for problem in problems {
        complain!("{}: {problem}", file.display());
    }
    !problems.is_empty()
}

/// Removes the passwords of databases; whether there were any.
fn hide_passwords(configuration: &mut Configuration) -> bool {
    let urls = configuration.storages.iter_mut().filter_map(|storage| match &mut storage.kind {
        StorageKind::Maria { url } => Some(url),
        _ => None,
    });
    let nodes = configuration.neo_storage.iter_mut();
    let nodes = nodes.filter(|node| {
        node.kind_of_database() == NodeAdapter::Mysql || node.unclear_database().is_some()
    });
    let mut is_any = false;
    for text in urls.chain(nodes.map(|node| &mut node.database)) {
        if let Some((without, _)) = MariaAddress::split_password(text) {
            (*text, is_any) = (without, true);
        }
    }
    is_any
}

fn show((configuration, warnings): (Configuration, Vec<Warning>)) -> Result<ExitCode> {
    warn(&warnings);
    print(&configuration.to_toml()?)?;
    Ok(ExitCode::SUCCESS)
}

fn warn(warnings: &[Warning]) {
    for warning in warnings {
        complain!("{warning}");
    }
}
