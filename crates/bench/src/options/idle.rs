//! Options of `zodium-bench idle`.

use std::time::Duration;

use clap::Args;

use super::values::{count, seconds};
use super::{OutputOptions, ServerOptions};

/// Options of `zodium-bench idle`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub(crate) struct IdleOptions {
    /// Number of open connections
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0,1000")]
    pub(crate) connections: Vec<u16>,

    /// Seconds between heartbeats of each connection, 0 for none; stock clients use 60
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', default_value = "0,60")]
    pub(crate) heartbeats: Vec<u16>,

    /// Duration of each case
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) seconds: Duration,

    /// Idle time of a server before each case
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) warm_up: Duration,

    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,

    /// Number of objects in the served file
    #[arg(long, value_name = "N", default_value = "1000", value_parser = count,
          help_heading = "Dataset")]
    pub(crate) objects: u64,

    #[command(flatten)]
    pub(crate) servers: ServerOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
