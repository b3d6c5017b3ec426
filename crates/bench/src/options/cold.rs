//! Options of `zodium-bench cold`.

use std::path::PathBuf;

use clap::Args;

use super::values::{count, object_bytes};
use super::{Cell, OutputOptions, ServerOptions, TimeOptions};

pub(super) const HELP: &str = "\
How it is measured:
  Before each measurement the data file is evicted from the page cache. The servers' own caches
  (--cache-size) hold a quarter of it at most. Cold clients load objects that are far apart, none of
  them twice in a measurement, and each server loads all others before it comes back to one. So
  every load reads from the device. Resident clients load the same 64 objects again and again.

How to read it:
  device       a single thread with direct reads of the same places: no server can be below it
  over device  median of the loads over the median of those reads, in the same round; includes the
               round trip to the server, which the row of resident loads shows too
  beside       what other clients do meanwhile on the same worker: resident loads beside cold ones
               should be as fast as beside resident ones

Examples:
  zodium-bench cold                                       Zodium and the device
  zodium-bench cold --zeo-python .venv/bin/python         ZEO/py too
  zodium-bench cold --busy-poll 50                        and Zodium with --busy-poll
  zodium-bench cold --object-bytes 16000 --cells 1x1,1x64";

/// Options of `zodium-bench cold`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Dataset")]
pub(crate) struct ColdOptions {
    /// Number of objects, like 5000 or 10M
    #[arg(long, value_name = "N", value_parser = count, default_value = "100k")]
    pub(crate) objects: u64,

    /// Size of all objects
    #[arg(long, value_name = "BYTES", value_parser = object_bytes, default_value = "4000")]
    pub(crate) object_bytes: u32,

    /// Keep generated files in this folder, and use the files that it has
    #[arg(long, value_name = "FOLDER", env = "ZODIUM_BENCH_DATASETS")]
    pub(crate) datasets: Option<PathBuf>,

    /// Cold clients x requests in flight of each, without other clients
    #[arg(
        long,
        value_name = "CxR",
        value_delimiter = ',',
        default_value = "1x1,1x16",
        help_heading = "Measuring"
    )]
    pub(crate) cells: Vec<Cell>,

    /// Clients that run beside the resident one
    #[arg(long, value_name = "CxR", default_value = "4x1", help_heading = "Measuring")]
    pub(crate) beside: Cell,

    /// Also measure Zodium with --busy-poll, for this many microseconds
    #[arg(
        long,
        value_name = "MICROSECONDS",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = "Measuring"
    )]
    pub(crate) busy_poll: Option<u32>,

    #[command(flatten)]
    pub(crate) time: TimeOptions,

    #[command(flatten)]
    pub(crate) servers: ServerOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
