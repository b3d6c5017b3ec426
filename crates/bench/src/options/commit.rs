//! Options of `zodium-bench commit` and of its delay proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::milliseconds;
use super::{OutputOptions, ServerOptions, TimeOptions};

pub(super) const HELP: &str = "\
How it is measured:
  Clients are native and driven by replies, without threads of their own: each begins, stores, votes
  and finishes, and starts over. Begin and stores have no reply and leave with the vote, in one
  piece, as Zodium's own clients send them; stock clients send each of them alone. Every reply is
  checked. At the end of each case, all acknowledged data are read back and compared.

  add        new objects
  update     objects that only this client writes
  conflict   all clients write the same 8 objects: each loads one, increments a counter in it, and
             retries the commit until it succeeds; at the end the counters must equal the number of
             acknowledged commits

  A round trip longer than the machine's own is made by the clients: they send each request late,
  and handle each reply late. The round trip that they see is measured before every case and shown.
  `tmpfs` keeps the files in memory, where a sync is free: only the server's own cost is left.

How to read it:
  x 1 client  transactions/s relative to a single client, if that was measured in the same run
  % of allowed  with a delay only: percentage of the transactions/s that are possible if nothing but
              two round trips (vote, finish) takes time
  most / fewest  commits of the most successful client, over those of the least successful one; one
              without commits counts as if it had one
  fewest      commits of the least successful client
  server CPU  microseconds of the server's processor time per transaction
  a sync      transactions per sync, and syncs per second, if the server reports them
  vote, finish  from the request until the reply is read; that of the vote includes begin and
              stores; whole  from begin to the end of finish, in conflict mode with all attempts

Examples:
  zodium-bench commit --zeo-python .venv/bin/python --wires M5,Z5
  zodium-bench commit --modes conflict --clients 64
  zodium-bench commit --clients 1,4,16 --delays-ms 0,0.4,10,20 --files disk,tmpfs";

/// Options of `zodium-bench commit`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub(crate) struct CommitOptions {
    /// Numbers of clients that commit at the same time
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4,16,64",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) clients: Vec<u16>,

    /// What the clients do
    #[arg(long, value_enum, value_delimiter = ',', default_value = "update")]
    pub(crate) modes: Vec<Mode>,

    /// Round trips between client and server, in milliseconds; 0 is the machine's own
    #[arg(long, value_name = "MS", value_delimiter = ',', default_value = "0",
          value_parser = milliseconds)]
    pub(crate) delays_ms: Vec<Duration>,

    /// Objects in a transaction; conflict mode always has one
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) objects: u16,

    /// Size of an object
    #[arg(long, value_name = "BYTES", default_value_t = 999,
          value_parser = clap::value_parser!(u32).range(128..=1_000_000))]
    pub(crate) object_bytes: u32,

    #[command(flatten)]
    pub(crate) time: TimeOptions,

    /// Where the servers keep their files
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "disk",
        help_heading = "Servers"
    )]
    pub(crate) files: Vec<Files>,

    /// A folder in memory
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm", help_heading = "Servers")]
    pub(crate) tmpfs: PathBuf,

    #[command(flatten)]
    pub(crate) servers: ServerOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Each adds new objects
    Add,
    /// Each writes objects of its own
    Update,
    /// All write the same 8 objects. After a conflict a client writes the same object again
    Conflict,
    /// The same, but after a conflict a client writes any of the objects
    ConflictAny,
}

/// Where files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Files {
    /// On the disk of --folder, with every sync
    Disk,
    /// In memory
    Tmpfs,
}

/// Options of `zodium-bench delay-proxy`.
#[derive(Debug, Args)]
pub(crate) struct DelayOptions {
    /// The port to listen on, on 127.0.0.1
    #[arg(long)]
    pub(crate) port: u16,

    /// The server to forward to
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) to: SocketAddr,

    /// Round trip time to add, half of it in each direction
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub(crate) round_trip_ms: Duration,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Add => "add",
            Mode::Update => "update",
            Mode::Conflict => "conflict",
            Mode::ConflictAny => "conflict-any",
        }
    }

    /// Whether all clients write the same objects.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Mode::Conflict | Mode::ConflictAny)
    }
}

impl Files {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Files::Disk => "disk",
            Files::Tmpfs => "tmpfs",
        }
    }
}
