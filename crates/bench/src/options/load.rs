//! Options of `zodium-bench load`.

use clap::Args;

use super::{Cell, DatasetOptions, OutputOptions, ServerOptions, TimeOptions};

pub(super) const HELP: &str = "\
How it is measured:
  Each server is a process of its own and serves a generated file. A cell is a number of clients x
  requests in flight. Every round measures all cells, and within a round the servers take turns, so
  that a disturbance affects all of them. Objects are picked at random. Every reply is checked: that
  it answers the request, its length, and a CRC-32C over its bytes.

How to read it:
  server CPU   microseconds of processor time of the server's threads per request, including the
               kernel's work for them: the cost of a load, which decides how many fit a core
  requests/s   with the generator on the same machine, so the throughput of both together
  p50 ... max  latency in microseconds, from before the request is written until its reply is read;
               with many requests in flight, each one waits for others
  client CPU   processor time of the generator; if it is close to 1/(requests/s), the generator is
               the bottleneck, and only server CPU says something about the server
  floor        a server that only sends as many bytes from memory: the cost of hardware and kernel,
               which no server can be below
Values are medians over the rounds, with minimum and maximum. Ratios are taken round by round.

Examples:
  zodium-bench load                                 Zodium and the floor
  zodium-bench load --zeo-python .venv/bin/python   ZEO/py too
  zodium-bench load --cells 1x1 --seconds 10        serial loads only, longer
  zodium-bench load --cells 1x1 --busy-poll 50      serial loads, also with busy polling
  zodium-bench load --dataset prod1 --wires M5,Z5
  zodium-bench load --object-bytes 400 --objects 1M --revisions 5
  zodium-bench load --peer 'other=other-server --port {port} {path}'
  zodium-bench load > new.txt && benchstat -col /server new.txt";

/// Options of `zodium-bench load`.
#[derive(Debug, Args)]
pub(crate) struct LoadOptions {
    #[command(flatten)]
    pub(crate) dataset: DatasetOptions,

    /// What to measure: clients x requests in flight of each, separated by commas
    #[arg(
        long,
        value_name = "CxR",
        value_delimiter = ',',
        default_value = "1x1,4x1,16x1,1x64,16x64",
        help_heading = "Measuring"
    )]
    pub(crate) cells: Vec<Cell>,

    #[command(flatten)]
    pub(crate) time: TimeOptions,

    /// Threads of the load generator; each client stays on one of them
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=256),
        help_heading = "Measuring"
    )]
    pub(crate) threads: u16,

    /// Also measure servers with busy polling: Zodium with --busy-poll, and a floor that does the
    /// same, for this many microseconds after each request; ratios compare servers that poll alike
    #[arg(
        long,
        value_name = "MICROSECONDS",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = "Measuring"
    )]
    pub(crate) busy_poll: Option<u32>,

    /// Afterwards count the system calls per request with strace, in one more round; all other
    /// results are measured without it
    #[arg(long, help_heading = "Measuring")]
    pub(crate) syscalls: bool,

    #[command(flatten)]
    pub(crate) servers: ServerOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
