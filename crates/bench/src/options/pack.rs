//! Options of `zodium bench pack`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::OutputOptions;
use super::values::seconds;

/// Options of `zodium bench pack`.
#[derive(Debug, Args)]
pub(crate) struct PackOptions {
    /// Objects that are in use
    #[arg(long, value_name = "N", default_value_t = 200_000,
          value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    pub(crate) objects: u64,

    /// Objects that nothing leads to
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) garbage: u64,

    /// How often each object in use is written again
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) revisions: u64,

    /// Size of an object
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    pub(crate) object_bytes: usize,

    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,

    /// Clients that commit during a pack
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) writers: u16,

    /// How long they commit before it
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    pub(crate) seconds: Duration,

    /// Measure the stock packer and ZEO/py too: a Python that has ZEO installed
    #[arg(long, value_name = "PYTHON")]
    pub(crate) zeo_python: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
