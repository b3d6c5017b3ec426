//! Options of `zodium-bench messenger` and of its servers.

use clap::{Args, ValueEnum};

use super::values::object_bytes;
use super::{DatasetOptions, OutputOptions, TimeOptions};

/// Options of `zodium-bench messenger`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub(crate) struct MessengerOptions {
    /// Sizes of blocks
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "16,4096,65536",
          value_parser = object_bytes)]
    pub(crate) block_bytes: Vec<u32>,

    /// Numbers of different blocks: few stay in the processor's caches, many come from memory
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "64,16384",
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) blocks: Vec<u64>,

    /// Requests that the one client has in flight
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16,64",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) depths: Vec<u16>,

    /// Variants measured beside the floor
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "base,checksum,unthrottled,allocated,copied"
    )]
    pub(crate) variants: Vec<Variant>,

    #[command(flatten)]
    pub(crate) time: TimeOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// A variant of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Variant {
    /// Prepared blocks sent without a copy, with back-pressure, without a checksum
    Base,
    /// With a CRC-32C over each sent block
    Checksum,
    /// Without back-pressure; measured only where so much is in flight that base has some
    Unthrottled,
    /// With an allocation and a copy for each block
    Allocated,
    /// With blocks copied into the output, which is written as one
    Copied,
}

/// Options of `zodium-bench messenger-server`.
#[derive(Debug, Args)]
pub(crate) struct MessengerServerOptions {
    #[command(flatten)]
    pub(crate) dataset: DatasetOptions,

    /// The port to listen on, on 127.0.0.1
    #[arg(long)]
    pub(crate) port: u16,

    /// The variant to run
    #[arg(long, value_enum)]
    pub(crate) variant: Variant,
}

impl Variant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Variant::Base => "base",
            Variant::Checksum => "checksum",
            Variant::Unthrottled => "unthrottled",
            Variant::Allocated => "allocated",
            Variant::Copied => "copied",
        }
    }
}
