//! Options of `zodium-bench client` and of its native driver.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::milliseconds;
use super::{DatasetOptions, OutputOptions, ServerOptions, TimeOptions};

pub(super) const HELP: &str = "\
How it is measured:
  The clients are zodium.ClientStorage, ZEO's ClientStorage and the Rust client (native). Each runs
  in a new process for each case of each round, against the same server, in turns. Its processor
  time is that of all its threads while it is timed. A pass begins with a new client and an empty
  cache; connecting and the first pass are not counted. Afterwards a checksum over everything
  loaded is compared with that of the stored data.

  load     every object once, one after the other, in one thread: uncached, and once more: cached.
           All data are kept, so a Python client copies each object to fresh memory; the native
           client hands out what is in its cache
  threads  the same, uncached, by several threads of one process, each with a part of the objects
  bulk     1,000 objects through a proxy that adds a delay: all are requested with prefetch
           (native: with one call), and then loaded one after the other
  commit   tpc_begin, store of some objects, tpc_vote, tpc_finish, by one client; at the end
           another client loads the committed objects and compares them
  iterate  all records of all transactions; stopped after --patience seconds

How to read it:
  us           microseconds for one: load, commit, or record
  client CPU   microseconds of the client process's processor time for one
  round trips  total time, as a number of the configured round trips
  x: zodium / it  below 1: zodium.ClientStorage takes less than this client of the same server

Examples:
  zodium-bench client --python .venv/bin/python --zeo-python .venv/bin/python
  zodium-bench client --python python3 --dataset prod1 --cases load,threads
  zodium-bench client --python python3 --objects 100k --object-bytes 400 --cases iterate";

/// Options of `zodium-bench client`.
#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// A Python with zodium and ZEO installed
    #[arg(long, value_name = "PYTHON")]
    pub(crate) python: PathBuf,

    #[command(flatten)]
    pub(crate) dataset: DatasetOptions,

    /// Cases to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "load,threads,bulk,commit,iterate",
        help_heading = "Measuring"
    )]
    pub(crate) cases: Vec<ClientCase>,

    /// Numbers of threads of the case `threads`
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Measuring")]
    pub(crate) threads: Vec<u16>,

    /// Round trip time of the case `bulk`
    #[arg(long, value_name = "MS", default_value = "10", value_parser = milliseconds,
          help_heading = "Measuring")]
    pub(crate) round_trip_ms: Duration,

    /// Objects in a commit
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = "Measuring")]
    pub(crate) commit_objects: u16,

    /// Size of a committed object
    #[arg(long, value_name = "BYTES", default_value_t = 999,
          value_parser = clap::value_parser!(u32).range(128..=60_000), help_heading = "Measuring")]
    pub(crate) commit_bytes: u32,

    /// Time limit of an iteration
    #[arg(long, value_name = "SECONDS", default_value_t = 5, help_heading = "Measuring")]
    pub(crate) patience: u16,

    #[command(flatten)]
    pub(crate) time: TimeOptions,

    #[command(flatten)]
    pub(crate) servers: ServerOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientCase {
    /// Loads, one after the other, uncached and cached
    Load,
    /// Uncached loads by several threads
    Threads,
    /// A thousand loads at once over a long round trip
    Bulk,
    /// Commits
    Commit,
    /// Iteration over the records of all transactions
    Iterate,
}

/// Options of `zodium-bench client-driver`.
#[derive(Debug, Args)]
pub(crate) struct ClientDriverOptions {
    /// The job, as JSON
    pub(crate) job: String,
}
