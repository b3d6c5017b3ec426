//! The options of `zodium-bench`, with their help.

mod client;
mod cold;
mod commit;
mod idle;
mod load;
mod messenger;
mod neo;
mod pack;
mod probe;
mod rcu;
mod read_all;
mod report;
mod resp;
mod shared;
mod start;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::client::{ClientCase, ClientDriverOptions, ClientOptions};
pub(crate) use self::cold::ColdOptions;
pub(crate) use self::commit::{CommitOptions, DelayOptions, Files, Mode};
pub(crate) use self::idle::IdleOptions;
pub(crate) use self::load::LoadOptions;
pub(crate) use self::messenger::{MessengerOptions, MessengerServerOptions, Variant};
pub(crate) use self::neo::{NeoOptions, NeoPart};
pub(crate) use self::pack::PackOptions;
pub(crate) use self::probe::{SyscallOptions, SystemOptions};
pub(crate) use self::rcu::{KindName, RcuOptions};
pub(crate) use self::read_all::{Checksum, ReadAllOptions};
pub(crate) use self::report::ReportOptions;
pub(crate) use self::resp::RespOptions;
pub(crate) use self::shared::{
    DatasetOptions, Format, OutputOptions, ServerOptions, TimeOptions, ZodiumOptions,
};
pub(crate) use self::start::{Beside, Source, StartOptions};
pub(crate) use self::values::{Cell, Peer, PeerSource};

/// Measure Zodium beside its peers, on this machine
#[derive(Debug, Parser)]
#[command(name = "zodium-bench", version)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct BenchOptions {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// The benchmark to run.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure loads: server CPU per request, and requests per second
    ///
    /// Loads objects from Zodium and its peers, with few and many clients and with one and many
    /// requests in flight. Shows what a request costs the server.
    #[command(after_long_help = load::HELP)]
    Load(LoadOptions),
    /// Measure loads of objects that are not in memory, beside the device's own latency
    ///
    /// Shows how much longer than the device a load takes, and whether such loads slow down clients
    /// that load objects from memory.
    #[command(after_long_help = cold::HELP)]
    Cold(ColdOptions),
    /// Read every object once, one after the other, with a checksum over all: time per object
    ///
    /// Also reads from a FileStorage within Python, without a server. Rows `none` show the cost of
    /// loads, the others what a checksum adds; rows `memory` are the checksum alone.
    #[command(visible_alias = "zhash")]
    ReadAll(ReadAllOptions),
    /// Measure commits: transactions per second, time of each step, server CPU per transaction
    ///
    /// Clients add objects, update their own objects, or all write the same few objects; near or
    /// far away, with files on disk or in memory.
    #[command(after_long_help = commit::HELP)]
    Commit(CommitOptions),
    /// Measure Python clients: zodium.ClientStorage beside ZEO's and the native client
    ///
    /// Loads (cached and uncached, single- and multi-threaded, in bulk over a long round trip),
    /// commits and iteration: elapsed time and processor time of the client's process.
    #[command(after_long_help = client::HELP)]
    Client(ClientOptions),
    /// Measure the link layer alone, varying one thing at a time, beside bare epoll
    ///
    /// Servers without storage or protocol answer 36 bytes with a block. The variant `base` sends
    /// prepared messages without a copy, with back-pressure and without a checksum; each other
    /// variant differs from it in one thing.
    Messenger(MessengerOptions),
    /// Measure storage nodes of NEO: loads, commits, replication
    ///
    /// Zodium's beside NEO/py's, without any other node of NEO: what one storage node costs.
    #[command(after_long_help = neo::HELP)]
    Neo(NeoOptions),
    /// Measure packing: seconds and memory beside the stock packer, and delays of commits
    ///
    /// Each packer gets a fresh copy of one generated file in each round. Zodium's time is that of
    /// the whole process `zodium pack`; the stock packer's is that of its pack alone, without
    /// Python's start. Then each server packs while clients commit.
    Pack(PackOptions),
    /// Measure starts: time to the first reply with and without an index, and memory
    ///
    /// Servers are started on the same file in turns, each time with only the side files of the
    /// case. Memory is that of the process after the first reply, and after every object was loaded
    /// once.
    Start(StartOptions),
    /// Measure idle connections: processor time, context switches, memory
    Idle(IdleOptions),
    /// Compare kinds of keyspace: locks, epochs, and what our RESP server has
    ///
    /// Threads read and write keys within this process. Shows what keeping readers apart from
    /// writers costs.
    Rcu(RcuOptions),
    /// Measure a RESP server beside Valkey: server CPU per request, latencies, memory per key
    #[command(after_long_help = resp::HELP)]
    Resp(RespOptions),
    /// Measure single system calls, warm and cold
    ///
    /// The calls that a server makes, one by one and in batches.
    Syscalls(SyscallOptions),
    /// Find what would disturb a benchmark on this machine, with advice
    System(SystemOptions),
    /// Make an HTML page of tables and charts from files written with --json
    Report(ReportOptions),
    /// Write the dataset's file, for a server that is started elsewhere
    Dataset(DatasetFileOptions),
    /// Run the cases of `client` in Rust
    #[command(hide = true)]
    ClientDriver(ClientDriverOptions),
    /// Answer raw requests through the link layer, as `messenger` measures it
    #[command(hide = true)]
    MessengerServer(MessengerServerOptions),
    /// Forward connections with a delay, as `commit` does
    #[command(hide = true)]
    DelayProxy(DelayOptions),
    /// Answer requests from memory: the floor that `load` and `resp` compare with
    #[command(hide = true)]
    FloorServer(FloorOptions),
}

/// Options of `zodium-bench dataset`.
#[derive(Debug, Args)]
pub(crate) struct DatasetFileOptions {
    #[command(flatten)]
    pub(crate) dataset: DatasetOptions,

    /// The data file to make
    pub(crate) path: PathBuf,
}

/// Options of `zodium-bench floor-server`.
#[derive(Debug, Args)]
pub(crate) struct FloorOptions {
    #[command(flatten)]
    pub(crate) dataset: DatasetOptions,

    /// The port to listen on, on 127.0.0.1
    #[arg(long)]
    pub(crate) port: u16,

    /// Answer the GET and SET of `resp` instead of raw requests; values are not stored
    #[arg(long)]
    pub(crate) resp: bool,

    /// Poll for requests for this many microseconds after each one, without sleeping
    #[arg(long, default_value_t = 0)]
    pub(crate) busy_poll: u32,
}
