//! Options of `zodium-bench start`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::values::{count, object_bytes};
use super::{DatasetOptions, OutputOptions, ServerOptions};

/// Options of `zodium-bench start`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub(crate) struct StartOptions {
    /// Number of objects, like 500k or 10M
    #[arg(long, value_name = "N", default_value = "1M", value_parser = count,
          help_heading = "Dataset")]
    pub(crate) objects: u64,

    /// Size of all objects
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = object_bytes,
          help_heading = "Dataset")]
    pub(crate) object_bytes: u32,

    /// Keep generated files in this folder, and use the files that it has
    #[arg(long, value_name = "FOLDER", env = "ZODIUM_BENCH_DATASETS", help_heading = "Dataset")]
    pub(crate) datasets: Option<PathBuf>,

    /// Side files beside the data file
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all,index,checksums,nothing")]
    pub(crate) beside: Vec<Beside>,

    /// Where the files are when a server starts
    #[arg(long, value_enum, value_delimiter = ',', default_value = "memory")]
    pub(crate) source: Vec<Source>,

    /// Number of rounds; memory is measured once
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,

    /// Skip the measurement of memory, which loads every object
    #[arg(long)]
    pub(crate) no_memory: bool,

    #[command(flatten)]
    pub(crate) servers: ServerOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// The side files of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Beside {
    /// The index, its checksum file, and record checksums: as Zodium leaves them
    All,
    /// Only the index, as ZODB leaves it
    Index,
    /// Only the record checksums: the index is lost
    Checksums,
    /// Nothing
    Nothing,
}

/// Where files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Source {
    /// In the page cache
    Memory,
    /// On the disk only
    Disk,
}

impl StartOptions {
    pub(crate) fn dataset(&self) -> DatasetOptions {
        let sized = DatasetOptions::sized(self.objects, self.object_bytes);
        DatasetOptions { datasets: self.datasets.clone(), ..sized }
    }
}

impl Beside {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Beside::All => "all",
            Beside::Index => "index",
            Beside::Checksums => "checksums",
            Beside::Nothing => "nothing",
        }
    }

    pub(crate) fn has_index(self) -> bool {
        matches!(self, Beside::All | Beside::Index)
    }

    /// What the names of the files end with.
    pub(crate) fn suffixes(self) -> &'static [&'static str] {
        match self {
            Beside::All => &[".index", ".index.crc32c", ".checksums"],
            Beside::Index => &[".index"],
            Beside::Checksums => &[".checksums"],
            Beside::Nothing => &[],
        }
    }

    /// Whether only Zodium has such files.
    pub(crate) fn is_zodium_only(self) -> bool {
        matches!(self, Beside::All | Beside::Checksums)
    }
}

impl Source {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Source::Memory => "memory",
            Source::Disk => "disk",
        }
    }
}
