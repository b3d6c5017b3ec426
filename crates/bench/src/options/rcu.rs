//! Options of `zodium-bench rcu`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::OutputOptions;
use super::values::{count, seconds};

/// Options of `zodium-bench rcu`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub(crate) struct RcuOptions {
    /// Number of reads for each write
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100,10,1")]
    pub(crate) reads: Vec<u32>,

    /// Number of threads
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2")]
    pub(crate) threads: Vec<u16>,

    /// Whether each thread stays on a processor of its own
    #[arg(long, value_name = "BOOL", value_delimiter = ',', default_value = "false,true")]
    pub(crate) pinned: Vec<bool>,

    /// Kinds to measure [default: all]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) kinds: Vec<KindName>,

    /// Duration of each kind in each case and round
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) seconds: Duration,

    /// Number of rounds; the kinds take turns within each
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(2..))]
    pub(crate) rounds: u16,

    /// Number of keys, of 16 bytes
    #[arg(long, value_name = "N", default_value = "1000", value_parser = count,
          help_heading = "Dataset")]
    pub(crate) keys: u64,

    /// Size of each value in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100, help_heading = "Dataset")]
    pub(crate) value_size: usize,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// A kind of keyspace.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum KindName {
    /// None: what the threads themselves cost
    Nothing,
    /// One lock around a map
    Mutex,
    /// 64 maps, each behind a lock that readers share
    Shards,
    /// A skip list with epochs
    Epochs,
    /// A map whose readers are counted per batch
    Hyaline,
    /// The keyspace of our RESP server
    Zodium,
    /// The same, with the keys of 16 requests looked up together
    #[value(name = "zodium-by-16")]
    ZodiumBy16,
    /// The same, as commands other than short `GET` and `SET` read it
    ZodiumHold,
    /// The same, one for each thread
    ZodiumOwn,
}
