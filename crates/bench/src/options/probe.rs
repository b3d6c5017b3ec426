//! Options of `zodium bench syscalls` and `zodium bench system`.

use std::path::PathBuf;

use clap::Args;

use super::OutputOptions;

/// Options of `zodium bench syscalls`.
#[derive(Debug, Args)]
pub(crate) struct SyscallOptions {
    /// How often each call is made while everything it needs is in the processor's caches
    #[arg(long, value_name = "N", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) samples: u32,

    /// How often after the caches were flooded
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) cold_samples: u32,

    #[command(flatten)]
    pub(crate) probe: ProbeOptions,
}

/// Options of `zodium bench system`.
#[derive(Debug, Args)]
pub(crate) struct SystemOptions {
    /// How often each thing is tried; syncs and reads past the cache a tenth as often
    #[arg(long, value_name = "N", default_value_t = 5000,
          value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub(crate) samples: u32,

    #[command(flatten)]
    pub(crate) probe: ProbeOptions,
}

/// What both need.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProbeOptions {
    /// Folder for a file, which tells the disk that is measured [default: the system's for
    /// temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
