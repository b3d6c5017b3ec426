//! `zodium neo`: nodes of NEO clusters, and commands for their operators.

mod addresses;
mod admin;
mod asking;
mod ctl;
mod light;
mod light_kind;
mod light_monitoring;
mod master;
mod master_list;
mod monitoring;
mod node_kind;
mod options;
mod status;
mod storage;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use zodium_configuration::{Configuration, LogDestination};

use self::admin::Admin;
use self::ctl::CtlOptions;
use self::master::Master;
use self::node_kind::NodeArguments;
use self::options::StorageOptions;
use self::status::StatusOptions;
use crate::configuration_file::refuse;
use crate::tools::is_sqlite;

/// Options of `zodium neo`.
#[derive(Debug, Args)]
pub(crate) struct NeoOptions {
    #[command(subcommand)]
    command: NeoCommand,
}

/// Nodes and commands.
#[derive(Debug, Subcommand)]
enum NeoCommand {
    /// Run a storage node, in a cluster of NEO/py or of ours
    ///
    /// The options are those of neostorage; docs/neo.md says what differs. The node runs in the
    /// foreground until SIGTERM, or until the master stops it; SIGUSR2 reopens its log file and
    /// reads its certificates again.
    ///
    /// Exit codes: 0 after SIGTERM and when the master stops it, 1 after an error, 2 for a wrong
    /// command line.
    Storage(Box<StorageOptions>),
    /// Run a master of a cluster, beside others of ours or of NEO/py
    ///
    /// The options are those of neomaster; docs/neo.md says what differs. The master runs in the
    /// foreground until SIGTERM, or until the cluster stops; SIGUSR2 reopens its log file and
    /// reads its certificates again.
    ///
    /// Exit codes: 0 after SIGTERM and when the cluster stops, 1 after an error, 2 for a wrong
    /// command line.
    Master(Box<NodeArguments<Master>>),
    /// Run the admin of a cluster, which `zodium neo ctl` and neoctl connect to
    ///
    /// The options are those of neoadmin; docs/neo.md says what differs. The admin runs in the
    /// foreground until SIGTERM, or until the cluster stops; SIGUSR2 reopens its log file and
    /// reads its certificates again.
    ///
    /// Exit codes: 0 after SIGTERM and when the cluster stops, 1 after an error, 2 for a wrong
    /// command line.
    Admin(Box<NodeArguments<Admin>>),
    /// Give a command to a cluster, as neoctl does
    ///
    /// The commands and what they print are those of neoctl. Without a command this help is
    /// printed.
    ///
    /// Exit codes: 0 success, 1 the command was not carried out, 2 a wrong command line.
    #[command(disable_help_subcommand = true)]
    Ctl(Box<CtlOptions>),
    /// Show how a cluster is: nodes, partition table, and what to do next
    ///
    /// Exit codes: 0 all is well, 1 the admin cannot be asked, 3 something is not well.
    Status(Box<StatusOptions>),
}

/// Runs a node to its end, or carries a command out.
pub(crate) fn run(options: &NeoOptions) -> Result<ExitCode> {
    match &options.command {
        NeoCommand::Storage(options) => storage::run(options).map(|()| ExitCode::SUCCESS),
        NeoCommand::Master(options) => light::run(options).map(|()| ExitCode::SUCCESS),
        NeoCommand::Admin(options) => light::run(options).map(|()| ExitCode::SUCCESS),
        NeoCommand::Ctl(options) => ctl::run(options),
        NeoCommand::Status(options) => status::run(options),
    }
}

/// Refuses a configuration of a node that [`check`] refuses, or with the place of a database that
/// is none.
pub(crate) fn check_places(configuration: &Configuration) -> Result<()> {
    check(configuration)?;
    configuration.neo_storage.iter().try_for_each(|node| storage::location(node).map(drop))
}

/// Reports all errors of the configuration, and logs of NEO's, before any file is opened.
fn check(configuration: &Configuration) -> Result<()> {
    refuse(&configuration.check())?;
    for destination in &configuration.log.destinations {
        if let LogDestination::File(path) = destination
            && is_sqlite(path)
        {
            bail!(
                "the log file {} is a database, as NEO's nodes write them; move it away, or give \
                 another path: ours is a text",
                path.display()
            );
        }
    }
    Ok(())
}
