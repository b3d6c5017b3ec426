//! Options that several benchmarks have in common.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::{Encodings, Peer, count, object_bytes, seconds};
use crate::dataset::{Dataset, Shape};

/// Objects of the datasets with a name.
const BLOCKS_OBJECTS: u64 = 2127;
const SITE_OBJECTS: u64 = 3551;
const SIZED_BYTES: u32 = 1000;

/// The dataset. The same options always make the same bytes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Dataset")]
pub(crate) struct DatasetOptions {
    /// The kind of objects
    #[arg(long, value_enum, default_value_t = Kind::Wczblk1)]
    pub(crate) dataset: Kind,

    /// Number of objects, like 5000 or 10M [default: that of the kind; sized: 2127]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) objects: Option<u64>,

    /// Size of all objects; makes the kind `sized` [default of that: 1000]
    #[arg(long, value_name = "BYTES", value_parser = object_bytes)]
    pub(crate) object_bytes: Option<u32>,

    /// How many times each object is written; loads request the last revision
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) revisions: u32,

    /// Seed of the random bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Keep generated files in this folder, and use the files that it has
    #[arg(long, value_name = "FOLDER", env = "ZODIUM_BENCH_DATASETS")]
    pub(crate) datasets: Option<PathBuf>,
}

/// Datasets by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// An array of 8 MB in blocks of 4 KB: 2127 objects, median 4145 bytes
    Wczblk1,
    /// An ERP5 site, by the distributions of NEO's benchmarks: 3551 objects in about 1024
    /// transactions, median 442 bytes, up to 284 KB
    Prod1,
    /// Objects of one size
    Sized,
}

/// The server to measure.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Servers")]
pub(crate) struct ZodiumOptions {
    /// Zodium's program [default: zodium, in the folder of zodium-bench]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) zodium: Option<PathBuf>,
}

/// The servers to compare.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Servers")]
pub(crate) struct ServerOptions {
    #[command(flatten)]
    pub(crate) program: ZodiumOptions,

    /// Worker threads of Zodium [default: Zodium's own]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<u16>,

    /// Another option for `zodium serve`, like --zodium-option=--cache-size=0; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) zodium_option: Vec<String>,

    /// Encodings that Zodium and ZEO/py are measured in: M5, Z5 or both, separated by a comma
    #[arg(long, value_name = "ENCODINGS", default_value = "M5", conflicts_with = "pickle")]
    pub(crate) wires: Encodings,

    /// Speak pickle only, as --wires Z5
    #[arg(long)]
    pub(crate) pickle: bool,

    /// Also measure ZEO/py: a Python with ZEO installed
    #[arg(long, value_name = "PYTHON")]
    pub(crate) zeo_python: Option<PathBuf>,

    /// Also measure another ZEO server; may be repeated
    ///
    /// In the shell command, {path} and {port} are replaced; it must run the server in the
    /// foreground. Alternatively zeo://HOST:PORT names a running server of the file that
    /// `zodium-bench dataset` writes; its processor time is then unknown. The server's own encoding
    /// is used.
    #[arg(long, value_name = "NAME=COMMAND")]
    pub(crate) peer: Vec<Peer>,

    /// Leave out the floor
    #[arg(long)]
    pub(crate) no_floor: bool,

    /// Folder for the servers' files, which decides which disk is measured [default: the system's
    /// temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
}

/// Number and length of measurements.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub(crate) struct TimeOptions {
    /// Number of rounds
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..),
    )]
    pub(crate) rounds: u16,

    /// Seconds to measure each case of each server in each round
    ///
    /// Processor time is exact to 4 ms at worst, so 2 seconds are good for 0.2 %.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) seconds: Duration,

    /// Seconds of load before each measurement, not counted
    #[arg(long, value_name = "SECONDS", default_value = "0.3", value_parser = seconds)]
    pub(crate) warm_up: Duration,
}

/// Where the results go.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputOptions {
    /// The format on standard output
    #[arg(long, value_enum, default_value_t = Format::Go)]
    pub(crate) format: Format,

    /// Also write every sample to this file, as JSON, for `zodium-bench report`
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// What goes to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A line per measurement in the format of Go's benchmarks, for benchstat; the table goes to
    /// standard error
    Go,
    /// The table
    Table,
    /// Every sample, as JSON; the table goes to standard error
    Json,
}

impl DatasetOptions {
    /// A dataset of objects of one size, whose file is not kept.
    pub(crate) fn sized(objects: u64, bytes: u32) -> DatasetOptions {
        DatasetOptions {
            dataset: Kind::Sized,
            objects: Some(objects),
            object_bytes: Some(bytes),
            revisions: 1,
            seed: 1,
            datasets: None,
        }
    }

    pub(crate) fn dataset(&self) -> Dataset {
        let (shape, objects) = match (self.object_bytes, self.dataset) {
            (Some(bytes), _) => (Shape::Fixed(bytes), BLOCKS_OBJECTS),
            (None, Kind::Sized) => (Shape::Fixed(SIZED_BYTES), BLOCKS_OBJECTS),
            (None, Kind::Wczblk1) => (Shape::Blocks, BLOCKS_OBJECTS),
            (None, Kind::Prod1) => (Shape::Site, SITE_OBJECTS),
        };
        Dataset::new(shape, self.objects.unwrap_or(objects), self.revisions, self.seed)
    }

    /// The options that make the same dataset in another process.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let kind = self.dataset.to_possible_value();
        let mut arguments = vec![
            format!("--dataset={}", kind.as_ref().map_or("", |kind| kind.get_name())),
            format!("--revisions={}", self.revisions),
            format!("--seed={}", self.seed),
        ];
        arguments.extend(self.objects.map(|objects| format!("--objects={objects}")));
        arguments.extend(self.object_bytes.map(|bytes| format!("--object-bytes={bytes}")));
        arguments
    }
}

impl ServerOptions {
    /// `M5`, `Z5`, in the order given.
    pub(crate) fn encodings(&self) -> &[&'static str] {
        if self.pickle { &["Z5"] } else { &self.wires.0 }
    }
}
