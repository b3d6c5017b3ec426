//! Options of `zodium-bench pack`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::seconds;
use super::{OutputOptions, ZodiumOptions};

/// Options of `zodium-bench pack`.
#[derive(Debug, Args)]
pub(crate) struct PackOptions {
    /// Number of reachable objects
    #[arg(long, value_name = "N", default_value_t = 200_000,
          value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    pub(crate) objects: u64,

    /// Number of unreachable objects
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) garbage: u64,

    /// How many more times each reachable object is written
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) revisions: u64,

    /// Size of an object
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    pub(crate) object_bytes: usize,

    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,

    /// Number of clients that commit during a pack
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) writers: u16,

    /// How long they commit before the pack
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    pub(crate) seconds: Duration,

    /// Also measure the stock packer and ZEO/py: a Python with ZEO installed
    #[arg(long, value_name = "PYTHON")]
    pub(crate) zeo_python: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) program: ZodiumOptions,

    /// Folder for all files, on the disk to measure [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
