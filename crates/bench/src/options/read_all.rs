//! Options of `zodium-bench read-all`.

use clap::{Args, ValueEnum};

use super::{DatasetOptions, OutputOptions, ServerOptions, TimeOptions};

/// Options of `zodium-bench read-all`.
#[derive(Debug, Args)]
pub(crate) struct ReadAllOptions {
    #[command(flatten)]
    pub(crate) dataset: DatasetOptions,

    /// Checksums over all data
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "none,crc32,crc32c,sha1",
        help_heading = "Measuring"
    )]
    pub(crate) checksums: Vec<Checksum>,

    #[command(flatten)]
    pub(crate) time: TimeOptions,

    #[command(flatten)]
    pub(crate) servers: ServerOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// A checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Checksum {
    /// Lengths and transactions only
    None,
    /// As zlib has it
    Crc32,
    /// That of Castagnoli
    Crc32c,
    /// SHA-1
    Sha1,
}

impl Checksum {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Checksum::None => "none",
            Checksum::Crc32 => "crc32",
            Checksum::Crc32c => "crc32c",
            Checksum::Sha1 => "sha1",
        }
    }
}
