//! Options of `zodium-bench neo`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::values::{count, object_bytes};
use super::{Cell, OutputOptions, Peer, TimeOptions, ZodiumOptions};

pub(super) const HELP: &str = "\
How it is measured:
  Storage nodes are processes of their own. Their master and their clients are in this process,
  and do as a cluster of NEO does: they identify, load, store, vote, lock and unlock. So a storage
  node's processor time is its own work. Within a round the programs take turns.

  loads        of one storage node, for each number of clients x requests in flight
  commits      of clients that update objects of their own, on one storage node or several
  replication  of all objects of one storage node to an empty one

How to read it:
  server CPU   microseconds of processor time of the storage nodes, for each load or transaction
  source, target  the same for each object, of the node that has the objects and of the other one

Examples:
  zodium-bench neo --neoppod ~/neoppod --neoppod-python ~/neo-venv/bin/python
  zodium-bench neo --measure loads --cells 1x64 --seconds 10
  zodium-bench neo --peer 'other=node --cluster {cluster} --masters {master} --nid {nid} \
    --bind 127.0.0.1:{port} --database {path}'";

/// Options of `zodium-bench neo`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub(crate) struct NeoOptions {
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "loads,commits,replication")]
    pub(crate) measure: Vec<NeoPart>,

    /// Loads: clients x requests in flight of each
    #[arg(long, value_name = "CxR", value_delimiter = ',', default_value = "1x1,16x1,1x64")]
    pub(crate) cells: Vec<Cell>,

    /// Loads: number of objects
    #[arg(long, value_name = "N", default_value = "4000", value_parser = count)]
    pub(crate) load_objects: u64,

    /// Loads: size of an object
    #[arg(long, value_name = "BYTES", default_value = "4000", value_parser = object_bytes)]
    pub(crate) load_bytes: u32,

    /// Commits: numbers of clients
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) clients: Vec<u16>,

    /// Commits: numbers of storage nodes
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2",
          value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) storages: Vec<u16>,

    /// Commits: objects in a transaction
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) objects: u16,

    /// Commits: size of an object
    #[arg(long, value_name = "BYTES", default_value_t = 999,
          value_parser = clap::value_parser!(u32).range(128..=100_000))]
    pub(crate) object_bytes: u32,

    /// Replication: number of objects, of 1000 bytes
    #[arg(long, value_name = "N", default_value = "20k", value_parser = count)]
    pub(crate) replicated_objects: u64,

    /// Number of partitions
    #[arg(long, value_name = "N", default_value_t = 12,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) partitions: u32,

    #[command(flatten)]
    pub(crate) time: TimeOptions,

    #[command(flatten)]
    pub(crate) program: ZodiumOptions,

    /// Another option for `zodium neo storage`; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true, help_heading = "Servers")]
    pub(crate) zodium_option: Vec<String>,

    /// A checkout of NEO/py, to measure its storage node too
    #[arg(long, value_name = "FOLDER", env = "NEOPPOD", help_heading = "Servers")]
    pub(crate) neoppod: Option<PathBuf>,

    /// A Python that runs NEO/py
    #[arg(long, value_name = "PYTHON", env = "NEOPPOD_PYTHON", help_heading = "Servers")]
    pub(crate) neoppod_python: Option<PathBuf>,

    /// Also measure another storage node; may be repeated
    ///
    /// In the shell command {cluster}, {master}, {nid}, {port} and {path} are replaced. It must run
    /// in the foreground.
    #[arg(long, value_name = "NAME=COMMAND", help_heading = "Servers")]
    pub(crate) peer: Vec<Peer>,

    /// Folder for the databases, which decides which disk is measured [default: the system's
    /// temporary folder]
    #[arg(long, value_name = "FOLDER", help_heading = "Servers")]
    pub(crate) folder: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NeoPart {
    /// Loads
    Loads,
    /// Commits
    Commits,
    /// Replication
    Replication,
}
