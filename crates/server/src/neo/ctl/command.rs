//! The commands, in neoctl's words.

use clap::{ArgAction, Subcommand};
use zodium_neo::{ClusterState, NodeId, NodeType};
use zodium_types::Tid;

use super::values::{self, Check, Nodes};

/// A command.
#[derive(Debug, Subcommand)]
pub(super) enum CtlCommand {
    /// Print what the admin or the primary master knows
    #[command(subcommand)]
    Print(PrintCommand),
    /// Change the state of the cluster, or its number of replicas
    #[command(subcommand)]
    Set(SetCommand),
    /// Compare replicas with each other, or with a storage that is known to be right
    ///
    /// The outcome is in the logs of the primary master. A pack that some storages have carried
    /// out and others have not shows as a difference.
    Check {
        /// PARTITION:STORAGE ..., then the first and last transaction to compare
        ///
        /// Without PARTITION all of them are compared; without STORAGE no replica is preferred, in
        /// a backup cluster that of the upstream cluster. Transactions are given as for truncate.
        #[arg(
            required = true,
            num_args = 1..,
            value_name = "[PARTITION]:[STORAGE]|TID",
            value_parser = values::check,
        )]
        what: Vec<Check>,
    },
    /// Start operation after a start of the nodes; the same as `set cluster VERIFYING`
    Start,
    /// Let pending storages take part; `tweak` then gives them cells
    Add {
        /// Storages, or `all`
        #[arg(required = true, num_args = 1.., value_name = "NODE", value_parser = values::nodes)]
        nodes: Vec<Nodes>,
    },
    /// Balance the partition table
    ///
    /// Storages that are named, or down, keep their cells but do not count as replicas: they can be
    /// dropped when the others are up to date.
    Tweak {
        /// Only print what would change
        #[arg(short = 'n', long)]
        dry_run: bool,

        /// Storages that are to be dropped later
        #[arg(value_name = "NODE", value_parser = values::node)]
        nodes: Vec<NodeId>,
    },
    /// Remove a storage for good; it must be down. Erase its database before it comes back: `neo
    /// storage --reset`
    Drop {
        /// The storage
        #[arg(value_parser = values::node)]
        node: NodeId,
    },
    /// Stop a storage whose cells have replicas, or a secondary master
    Kill {
        /// The node
        #[arg(value_parser = values::node)]
        node: NodeId,
    },
    /// Have storages delete data that no record refers to; this can take long
    #[command(name = "prune_orphan", alias = "prune-orphan")]
    PruneOrphan {
        /// 1: only log what there is to delete; 0: delete it
        #[arg(action = ArgAction::Set, value_parser = values::flag)]
        dry_run: bool,

        /// Storages, or `all`
        #[arg(required = true, num_args = 1.., value_name = "NODE", value_parser = values::nodes)]
        nodes: Vec<Nodes>,
    },
    /// Remove all transactions after one, for good
    ///
    /// The cluster must be RUNNING, without transactions in progress. It goes back to RECOVERING
    /// and waits for all storages.
    Truncate {
        /// The last transaction that stays: tid:NUMBER (decimal, or 0x...), or Unix time in seconds
        #[arg(value_parser = values::tid)]
        tid: Tid,
    },
    /// Have all nodes write out their logs
    #[command(name = "flush_log", alias = "flush-log")]
    FlushLog,
}

/// What there is to print.
#[derive(Debug, Subcommand)]
pub(super) enum PrintCommand {
    /// The last object, transaction and partition table
    Ids,
    /// The partition table: a line for each storage
    ///
    /// A letter is a cell: U up to date, O out of date, F feeding, C corrupted, `.` none. With MIN
    /// or MAX there is a line for each partition from MIN to before MAX.
    Pt {
        /// The first partition
        #[arg(default_value_t = 0)]
        min: u32,

        /// The partition after the last one; 0: all
        #[arg(default_value_t = 0)]
        max: u32,

        /// A node; admins do not look at it
        #[arg(value_parser = values::node)]
        node: Option<NodeId>,
    },
    /// The nodes, with their addresses, states, and when they were identified
    Node {
        /// Of this kind only: master, storage, client or admin
        #[arg(value_name = "TYPE", value_parser = values::kind)]
        kind: Option<NodeType>,
    },
    /// The state of the cluster
    Cluster,
    /// The primary master
    Primary,
    /// The health of the cluster and of its backups
    ///
    /// The first line has the clusters with a warning and with a problem, in JSON after a `#`; null
    /// stands for this cluster.
    Summary,
}

/// What there is to set.
#[derive(Debug, Subcommand)]
pub(super) enum SetCommand {
    /// Put the cluster into a state: VERIFYING, STOPPING, STARTING_BACKUP or STOPPING_BACKUP
    Cluster {
        /// The state
        #[arg(value_parser = values::cluster_state)]
        state: ClusterState,
    },
    /// Set how many copies there are beside the first one; `tweak` then makes them
    Replicas {
        /// The number; 0: no copies
        #[arg(value_name = "NUMBER")]
        number: u32,
    },
}
