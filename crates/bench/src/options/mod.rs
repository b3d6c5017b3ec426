//! The options of `zodium bench`, with their help.

mod commit;
mod load;
mod messenger;
mod pack;
mod probe;
mod read_all;
mod report;
mod shared;
mod values;

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) use self::commit::{CommitOptions, DelayOptions, Files, Mode};
pub(crate) use self::load::LoadOptions;
pub(crate) use self::messenger::{MessengerOptions, MessengerServerOptions, Rung};
pub(crate) use self::pack::PackOptions;
pub(crate) use self::probe::{SyscallOptions, SystemOptions};
pub(crate) use self::read_all::{Checksum, ReadAllOptions};
pub(crate) use self::report::ReportOptions;
pub(crate) use self::shared::{DatasetOptions, Format, OutputOptions, ServerOptions, TimeOptions};
pub(crate) use self::values::{Cell, Peer, PeerSource};

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
    #[command(after_long_help = load::HELP)]
    Load(LoadOptions),
    /// Read every object once, one after the other, with a checksum over all: time per object
    ///
    /// Also from a FileStorage within Python, without a server. Rows `none` say what loads take,
    /// the others what a checksum adds; rows of `memory` are the checksum alone.
    #[command(visible_alias = "zhash")]
    ReadAll(ReadAllOptions),
    /// Measure commits: transactions per second, each step's time, server CPU per transaction
    ///
    /// Clients add objects, write their own again and again, or all write the same few, near or
    /// far away, with files on the disk or in memory.
    #[command(after_long_help = commit::HELP)]
    Commit(CommitOptions),
    /// Measure the link layer alone, one thing switched at a time, beside bare epoll
    ///
    /// Servers without storage or protocol answer 36 bytes with a block. The rung `base` has its
    /// messages ready and sends them from where they lie, with back-pressure and without checksum;
    /// each other rung differs from it in one thing.
    Messenger(MessengerOptions),
    /// Measure packing: seconds and memory beside the stock packer, and what commits notice of it
    ///
    /// Each packer gets a fresh copy of one generated file in each round. Zodium's seconds are
    /// those of the whole process `zodium pack`; the stock packer's are those of its pack alone,
    /// without Python's start. Then each server packs while clients commit.
    Pack(PackOptions),
    /// Measure single system calls, warm and cold
    ///
    /// Those that a server makes, one by one and in batches.
    Syscalls(SyscallOptions),
    /// Tell what would disturb a benchmark on this machine, with advice
    System(SystemOptions),
    /// Make one page of tables and charts from files that --json wrote
    Report(ReportOptions),
    /// Write the file that benchmarks load from, for a server that is started elsewhere
    Dataset(DatasetFileOptions),
    /// Answer raw requests through the link layer, as `messenger` measures it
    #[command(hide = true)]
    MessengerServer(MessengerServerOptions),
    /// Forward connections with a delay, as `commit` does
    #[command(hide = true)]
    DelayProxy(DelayOptions),
    /// Answer raw requests from memory: the floor that `load` compares with
    #[command(hide = true)]
    FloorServer(FloorOptions),
}

/// Options of `zodium bench dataset`.
#[derive(Debug, Args)]
pub(crate) struct DatasetFileOptions {
    #[command(flatten)]
    pub(crate) dataset: DatasetOptions,

    /// The data file to make
    pub(crate) path: PathBuf,
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
