//! Options of `zodium-bench resp`.

use std::path::PathBuf;

use clap::Args;

use super::values::{count, object_bytes};
use super::{Cell, OutputOptions, Peer, TimeOptions, ZodiumOptions};

pub(super) const HELP: &str = "\
How it is measured:
  Each server is a process of its own with one thread that serves, and has all keys. Within a round
  the servers take turns. Keys are picked at random. Every value is checked with a CRC-32C.
  The server stays on the first processor, and the clients on the last one; with --pinned=false
  both use all. The floor finds the key's number in a request and sends an answer that it made at
  its start; it has no keyspace and stores nothing. With --beside-keys it is left out.

How to read it:
  server CPU   microseconds of processor time of the server's threads per request. Without
               pipelining the clients take more than that, so requests/s says little.
  bytes/key    growth of the server's resident memory, over the number of keys

Examples:
  zodium-bench resp --valkey ../valkey              beside the stock server
  zodium-bench resp --valkey ../valkey --memory-keys 0 --cells 50x16 --value-bytes 32
  zodium-bench resp --peer 'other=other-server --port {port}'";

/// Options of `zodium-bench resp`.
#[derive(Debug, Args)]
pub(crate) struct RespOptions {
    /// What to measure: clients x requests in flight of each, separated by commas
    #[arg(
        long,
        value_name = "CxR",
        value_delimiter = ',',
        default_value = "1x1,50x1,50x16",
        help_heading = "Measuring"
    )]
    pub(crate) cells: Vec<Cell>,

    /// Sizes of values
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "32,1000",
          value_parser = object_bytes, help_heading = "Measuring")]
    pub(crate) value_bytes: Vec<u32>,

    /// Number of GET for each SET
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Measuring")]
    pub(crate) reads: u32,

    /// Have one more client list all keys again and again (KEYS); our server has two workers then
    ///
    /// Look at p50 and p99: processor time is that of the lists too.
    #[arg(long, help_heading = "Measuring")]
    pub(crate) beside_keys: bool,

    /// Whether the server and the clients have a processor each [default: if there are
    /// two, and no client lists keys]
    #[arg(long, value_name = "BOOL", help_heading = "Measuring")]
    pub(crate) pinned: Option<bool>,

    /// Number of keys for requests
    #[arg(long, value_name = "N", default_value = "1M", value_parser = count,
          help_heading = "Dataset")]
    pub(crate) keys: u64,

    /// Number of keys for the measurement of memory; 0 leaves it out
    #[arg(long, value_name = "N", default_value = "1M", value_parser = count_or_none,
          help_heading = "Dataset")]
    pub(crate) memory_keys: u64,

    /// Sizes of values for the measurement of memory
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "100,32",
          value_parser = object_bytes, help_heading = "Dataset")]
    pub(crate) memory_bytes: Vec<u32>,

    #[command(flatten)]
    pub(crate) program: ZodiumOptions,

    /// Also measure Valkey: a tree of its sources with its programs built in src/
    #[arg(long, value_name = "TREE", env = "VALKEY", help_heading = "Servers")]
    pub(crate) valkey: Option<PathBuf>,

    /// Also measure another server; may be repeated
    ///
    /// In the shell command, {port} is replaced; it must run the server in the foreground.
    #[arg(long, value_name = "NAME=COMMAND", help_heading = "Servers")]
    pub(crate) peer: Vec<Peer>,

    #[command(flatten)]
    pub(crate) time: TimeOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

impl RespOptions {
    /// Whether the server and the clients have a processor each.
    pub(crate) fn is_pinned(&self) -> bool {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        self.pinned.unwrap_or(processors > 1 && !self.beside_keys)
    }
}

/// A number of keys, or 0.
fn count_or_none(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { count(text) }
}
