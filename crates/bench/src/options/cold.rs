//! Options of `zodium bench cold`.

use std::path::PathBuf;

use clap::Args;

use super::values::{count, object_bytes};
use super::{Cell, OutputOptions, ServerOptions, TimeOptions};

pub(super) const HELP: &str = "\
How it is measured:
  Before each measurement the system forgets the pages of the data file, and of what was loaded
  since a server has a quarter at most in its own memory (--cache-size). Cold clients go through the
  objects in an order in which neighbours are far apart and none comes twice, so that every load is
  from the device. Resident clients load 64 objects again and again.

How to read it:
  device       a thread of its own that reads the same places, past the system's memory: what no
               server gets below
  over device  a load's median over the median of those reads in the same round: the way to the
               server and back is in it, which the row of resident loads has too
  beside       what other clients do meanwhile on the same worker: resident loads beside cold ones
               are to be as fast as beside resident ones

Examples:
  zodium bench cold                                       Zodium and the device
  zodium bench cold --zeo-python .venv/bin/python         ZEO/py too
  zodium bench cold --busy-poll 50                        and Zodium with --busy-poll
  zodium bench cold --object-bytes 16000 --cells 1x1,1x64";

/// Options of `zodium bench cold`.
#[derive(Debug, Args)]
pub(crate) struct ColdOptions {
    /// Number of objects, like 5000 or 10M
    #[arg(long, value_name = "N", value_parser = count, default_value = "100k",
          help_heading = "Dataset")]
    pub(crate) objects: u64,

    /// Size of all objects
    #[arg(long, value_name = "BYTES", value_parser = object_bytes, default_value = "4000",
          help_heading = "Dataset")]
    pub(crate) object_bytes: u32,

    /// Keep generated files in this folder, and use those that are there
    #[arg(long, value_name = "FOLDER", env = "ZODIUM_BENCH_DATASETS", help_heading = "Dataset")]
    pub(crate) datasets: Option<PathBuf>,

    /// Cold clients x requests in flight of each, with nobody beside them
    #[arg(
        long,
        value_name = "CxR",
        value_delimiter = ',',
        default_value = "1x1,1x16",
        help_heading = "Measuring"
    )]
    pub(crate) cells: Vec<Cell>,

    /// Clients beside the resident one
    #[arg(long, value_name = "CxR", default_value = "4x1", help_heading = "Measuring")]
    pub(crate) beside: Cell,

    /// Measure Zodium with --busy-poll too, for so many microseconds
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
