//! Options of `zodium bench client` and of its native driver.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::milliseconds;
use super::{DatasetOptions, OutputOptions, ServerOptions, TimeOptions};

pub(super) const HELP: &str = "\
How it is measured:
  Each client, zodium.ClientStorage, ZEO's ClientStorage and the Rust client (native), is a process
  of its own for each case of each round; the server is the same, and the clients take turns.
  Its processor time is that of all its threads while it was timed. A pass begins with a new client
  and an empty cache; connecting is not counted, nor is the first pass. Of everything loaded a
  checksum is taken afterwards, and compared with that of what was stored.

  load     every object once, one after the other, in one thread: uncached, and once more: cached
  threads  the same, uncached, by some threads of one process, each a part of the objects
  bulk     1,000 objects through a proxy that makes the round trip longer: all of them asked for
           with prefetch (native: in one call), and then taken one after the other
  commit   tpc_begin, store of some objects, tpc_vote, tpc_finish, by one client; at the end
           what was committed is loaded by another one and compared
  iterate  all records of all transactions; who is slow is stopped after --patience seconds

How to read it:
  us           microseconds for one: load, commit, or record
  client CPU   microseconds of processor time that the client's process took for one
  round trips  what the whole took, in round trips as they were asked for
  x: zodium / it  below 1: zodium.ClientStorage takes less than this client of the same server

Examples:
  zodium bench client --python .venv/bin/python --zeo-python .venv/bin/python
  zodium bench client --python python3 --dataset prod1 --cases load,threads
  zodium bench client --python python3 --objects 100k --object-bytes 400 --cases iterate";

/// Options of `zodium bench client`.
#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// A Python that has zodium and ZEO installed
    #[arg(long, value_name = "PYTHON")]
    pub(crate) python: PathBuf,

    #[command(flatten)]
    pub(crate) dataset: DatasetOptions,

    /// What the clients do
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "load,threads,bulk,commit,iterate",
        help_heading = "Measuring"
    )]
    pub(crate) cases: Vec<ClientCase>,

    /// Threads of the case `threads`
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Measuring")]
    pub(crate) threads: Vec<u16>,

    /// Round trip of the case `bulk`
    #[arg(long, value_name = "MS", default_value = "10", value_parser = milliseconds,
          help_heading = "Measuring")]
    pub(crate) round_trip_ms: Duration,

    /// Objects of a commit
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = "Measuring")]
    pub(crate) commit_objects: u16,

    /// Size of an object that is committed
    #[arg(long, value_name = "BYTES", default_value_t = 999,
          value_parser = clap::value_parser!(u32).range(128..=60_000), help_heading = "Measuring")]
    pub(crate) commit_bytes: u32,

    /// How long an iteration may take
    #[arg(long, value_name = "SECONDS", default_value_t = 5, help_heading = "Measuring")]
    pub(crate) patience: u16,

    #[command(flatten)]
    pub(crate) time: TimeOptions,

    #[command(flatten)]
    pub(crate) servers: ServerOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientCase {
    /// Loads, one after the other, uncached and cached
    Load,
    /// Uncached loads by some threads
    Threads,
    /// A thousand loads at once, far away
    Bulk,
    /// Commits
    Commit,
    /// Records of all transactions
    Iterate,
}

/// Options of `zodium bench client-driver`.
#[derive(Debug, Args)]
pub(crate) struct ClientDriverOptions {
    /// What to do, as JSON
    pub(crate) job: String,
}
