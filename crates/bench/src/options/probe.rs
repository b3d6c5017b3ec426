//! Options of `zodium-bench syscalls` and `zodium-bench system`.

use std::path::PathBuf;

use clap::Args;

use super::OutputOptions;

/// Options of `zodium-bench syscalls`.
#[derive(Debug, Args)]
pub(crate) struct SyscallOptions {
    /// Number of calls of each kind with warm processor caches
    #[arg(long, value_name = "N", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) samples: u32,

    /// Number of calls of each kind after flooding the caches
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) cold_samples: u32,

    #[command(flatten)]
    pub(crate) probe: ProbeOptions,
}

/// Options of `zodium-bench system`.
#[derive(Debug, Args)]
pub(crate) struct SystemOptions {
    /// Number of samples of each kind; a tenth as many of syncs and direct reads
    #[arg(long, value_name = "N", default_value_t = 5000,
          value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub(crate) samples: u32,

    #[command(flatten)]
    pub(crate) probe: ProbeOptions,
}

/// Options of both.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProbeOptions {
    /// Folder for a file, which decides which disk is measured [default: the system's temporary
    /// folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
