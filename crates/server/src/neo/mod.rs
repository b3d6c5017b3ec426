//! `zodium neo`: nodes of NEO clusters.

mod addresses;
mod master_list;
mod monitoring;
mod options;
mod storage;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use self::options::StorageOptions;

/// Options of `zodium neo`.
#[derive(Debug, Args)]
pub(crate) struct NeoOptions {
    #[command(subcommand)]
    node: NodeKind,
}

/// The kinds of nodes.
#[derive(Debug, Subcommand)]
enum NodeKind {
    /// Run a storage node, in a cluster of NEO/py or of ours
    ///
    /// The options are those of neostorage; docs/neo.md says what differs. The node runs in the
    /// foreground until SIGTERM, or until the master stops it; SIGUSR2 ends it at once.
    ///
    /// Exit codes: 0 after SIGTERM and when the master stops it, 1 after an error, 2 for a wrong
    /// command line.
    Storage(Box<StorageOptions>),
}

/// Runs a node to its end.
pub(crate) fn run(options: &NeoOptions) -> Result<ExitCode> {
    match &options.node {
        NodeKind::Storage(options) => storage::run(options).map(|()| ExitCode::SUCCESS),
    }
}
