//! The options of `zodium bench`, with their help.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::dataset::{Dataset, OBJECT_BYTES_MAX, OBJECT_BYTES_MIN, Sizes};

/// Most requests a client may have in flight: so many fit the socket buffers whatever the server
/// does, and a generator that writes before it reads cannot lock up with it.
const IN_FLIGHT_MAX: usize = 1024;
const CLIENTS_MAX: usize = 1024;

/// Objects of the wczblk1-like dataset.
const OBJECTS_DEFAULT: u64 = 2127;

const LOAD_HELP: &str = "\
How it is measured:
  Each server is a process of its own and serves its own copy of a generated file. The cells
  (clients x requests in flight) are gone through round by round; within a round the servers take
  turns, so that a disturbance hits all of them. Objects are picked at random. Every reply is
  checked: that it answers the request, its length, and a CRC-32C over its bytes.

How to read it:
  server CPU   microseconds of processor time the server's threads took per request, the kernel's
               work for them included: what a load costs, and what decides how many fit a core
  requests/s   with the generator on the same machine, so of both together
  p50, p99     microseconds from before the request is written until after its reply is read; with
               many in flight a request waits for the others
  client CPU   what the generator itself took; where it nears 1/(requests/s), the generator is what
               is measured, and only server CPU says something about the server
  floor        a server that does nothing but answer as many bytes from memory: the hardware's and
               the kernel's share, which no server gets below
Medians over the rounds, with minimum and maximum. Ratios are taken round by round.

Examples:
  zodium bench load                                 Zodium and the floor
  zodium bench load --zeo-python .venv/bin/python   ZEO/py too
  zodium bench load --cells 1x1 --seconds 10        serial loads only, longer
  zodium bench load --object-bytes 400 --objects 100000
  zodium bench load --peer 'other=other-server --port {port} {path}'
  zodium bench load > new.txt && benchstat -col /server new.txt";

/// Options of `zodium bench`.
#[derive(Debug, Args)]
pub struct BenchOptions {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure loads: server CPU per request, and requests per second
    ///
    /// Loads objects from Zodium and from its peers with few and many clients, one and many
    /// requests in flight, and says what a request costs the server.
    #[command(after_long_help = LOAD_HELP)]
    Load(LoadOptions),
    /// Measure packing: seconds and memory beside the stock packer, and what commits notice of it
    ///
    /// Each packer gets a fresh copy of one generated file in each round. Zodium's seconds are
    /// those of the whole process `zodium pack`; the stock packer's are those of its pack alone,
    /// without Python's start. Then each server packs while clients commit.
    Pack(PackOptions),
    /// Answer raw requests from memory: the floor that `load` compares with
    #[command(hide = true)]
    FloorServer(FloorOptions),
}

/// Options of `zodium bench load`.
#[derive(Debug, Args)]
pub(crate) struct LoadOptions {
    #[command(flatten)]
    pub(crate) dataset: DatasetOptions,

    /// What to measure: clients x requests in flight of each, separated by commas
    #[arg(
        long,
        value_name = "CxR",
        value_delimiter = ',',
        default_value = "1x1,16x1,1x64,16x64",
        help_heading = "Measuring"
    )]
    pub(crate) cells: Vec<Cell>,

    /// How often everything is measured
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..),
        help_heading = "Measuring"
    )]
    pub(crate) rounds: u16,

    /// How long each cell of each server is measured in each round
    ///
    /// Processor time is known to 4 ms at worst, so that 2 seconds are good for 0.2 %.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "2",
        value_parser = seconds,
        help_heading = "Measuring"
    )]
    pub(crate) seconds: Duration,

    /// Time under load before each measurement, not counted
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "0.3",
        value_parser = seconds,
        help_heading = "Measuring"
    )]
    pub(crate) warm_up: Duration,

    /// Threads of the load generator; a client stays on one
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=256),
        help_heading = "Measuring"
    )]
    pub(crate) threads: u16,

    /// Worker threads of Zodium [default: Zodium's own]
    #[arg(long, value_name = "N", help_heading = "Servers")]
    pub(crate) workers: Option<u16>,

    /// Speak pickle (Z5) instead of msgpack (M5)
    #[arg(long, help_heading = "Servers")]
    pub(crate) pickle: bool,

    /// Measure ZEO/py too: a Python that has ZEO installed
    #[arg(long, value_name = "PYTHON", help_heading = "Servers")]
    pub(crate) zeo_python: Option<PathBuf>,

    /// Measure another ZEO server too; may be repeated
    ///
    /// {path} and {port} of the shell command are filled in; it has to become the server, not to
    /// start it in the background. The server is spoken to in the encoding that it announces.
    #[arg(long, value_name = "NAME=COMMAND", help_heading = "Servers")]
    pub(crate) peer: Vec<Peer>,

    /// Leave out the floor
    #[arg(long, help_heading = "Servers")]
    pub(crate) no_floor: bool,

    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Format::Go, help_heading = "Output")]
    pub(crate) format: Format,

    /// Also write every sample to this file, as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) json: Option<PathBuf>,
}

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
}

/// Which objects are loaded. The same options always make the same bytes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Dataset")]
pub(crate) struct DatasetOptions {
    /// Number of objects
    #[arg(
        long,
        value_name = "N",
        default_value_t = OBJECTS_DEFAULT,
        value_parser = clap::value_parser!(u64).range(1..=100_000_000)
    )]
    pub(crate) objects: u64,

    /// Size of all objects [default: like an 8 MB array in 4 KB blocks, median 4145 bytes]
    #[arg(long, value_name = "BYTES", value_parser = object_bytes)]
    pub(crate) object_bytes: Option<u32>,

    /// Where the random bytes begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Options of `zodium bench floor-server`.
#[derive(Debug, Args)]
pub(crate) struct FloorOptions {
    #[command(flatten)]
    pub(crate) dataset: DatasetOptions,

    /// The port to listen on, on 127.0.0.1
    #[arg(long)]
    pub(crate) port: u16,
}

/// What goes to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A line per measurement in the format of Go's benchmarks, which benchstat reads; the table
    /// goes to standard error
    Go,
    /// The table
    Table,
    /// Every sample, as JSON; the table goes to standard error
    Json,
}

/// So many clients, each with so many requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) clients: usize,
    pub(crate) in_flight: usize,
}

/// Another server: its name, and the command that becomes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) command: String,
}

impl DatasetOptions {
    pub(crate) fn dataset(&self) -> Dataset {
        let sizes = self.object_bytes.map_or(Sizes::Blocks, Sizes::Fixed);
        Dataset::new(self.objects, sizes, self.seed)
    }

    /// The options that make the same dataset in another process.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments =
            vec![format!("--objects={}", self.objects), format!("--seed={}", self.seed)];
        arguments.extend(self.object_bytes.map(|bytes| format!("--object-bytes={bytes}")));
        arguments
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Cell, String> {
        let parse =
            |text: &str, limit| text.parse().ok().filter(|number| (1..=limit).contains(number));
        let cell = text.split_once('x').and_then(|(clients, in_flight)| {
            let clients = parse(clients, CLIENTS_MAX)?;
            Some(Cell { clients, in_flight: parse(in_flight, IN_FLIGHT_MAX)? })
        });
        cell.ok_or_else(|| {
            format!("expected CLIENTSxIN_FLIGHT like 16x64, at most {CLIENTS_MAX}x{IN_FLIGHT_MAX}")
        })
    }
}

impl FromStr for Peer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Peer, Self::Err> {
        let (name, command) = text.split_once('=').ok_or("expected NAME=COMMAND")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            return Err("a name is letters, digits, dots, dashes and underscores");
        }
        if !command.contains("{port}") {
            return Err("the command does not say where {port} goes");
        }
        Ok(Peer { name: name.to_owned(), command: command.to_owned() })
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| *duration >= Duration::from_millis(1))
        .ok_or_else(|| "expected at least 0.001 seconds".to_owned())
}

fn object_bytes(text: &str) -> Result<u32, String> {
    let bytes = text.parse().ok();
    bytes
        .filter(|bytes| (OBJECT_BYTES_MIN..=OBJECT_BYTES_MAX).contains(bytes))
        .ok_or_else(|| format!("expected {OBJECT_BYTES_MIN} to {OBJECT_BYTES_MAX} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_clients_times_requests_in_flight() {
        assert_eq!("16x64".parse(), Ok(Cell { clients: 16, in_flight: 64 }));
        for wrong in ["", "x", "16", "0x1", "1x0", "1x1025", "axb", "1x-1"] {
            assert!(wrong.parse::<Cell>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_peer_has_a_plain_name_and_a_port() {
        let peer = "zeo-5=runzeo -a :{port} -f {path} --x=y".parse::<Peer>();
        let command = "runzeo -a :{port} -f {path} --x=y".to_owned();
        assert_eq!(peer, Ok(Peer { name: "zeo-5".to_owned(), command }));
        for wrong in ["runzeo", "=run {port}", "a/b=run {port}", "zeo=runzeo"] {
            assert!(wrong.parse::<Peer>().is_err(), "{wrong}");
        }
    }
}
