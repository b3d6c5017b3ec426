//! Benchmarks of servers, in one run with their peers and with what the hardware allows.
//!
//! Each server is a process of its own, so that its CPU time is separate from the load generator's.
//! The generator is native and checks every byte that it receives. Peers take turns within each
//! round, so that a disturbance of the machine affects all of them.
//!
//! Invariant: the benchmarks never reach into a server. All are reached over a socket, ours
//! included.

#![forbid(unsafe_code)]

mod client;
mod cold;
mod commit;
mod comparison;
mod connection;
mod cpu;
mod dataset;
mod floor;
mod generator;
mod idle;
mod interrupt;
mod judge;
mod load;
mod machine;
mod matrix;
mod memory;
mod messenger;
mod options;
mod pack;
mod page;
mod probe;
mod read_all;
mod reading;
mod reply;
mod result;
mod server;
mod start;
mod statistics;
mod system_calls;
mod wire;

pub use options::BenchOptions;

/// Runs a benchmark. Errors are for people: what failed, with the last lines of a server's log.
pub fn run(options: &BenchOptions) -> anyhow::Result<()> {
    match &options.command {
        options::BenchCommand::Load(options) => load::run(options),
        options::BenchCommand::Cold(options) => cold::run(options),
        options::BenchCommand::Commit(options) => commit::run(options),
        options::BenchCommand::Client(options) => client::run(options),
        options::BenchCommand::ClientDriver(options) => client::native::drive(options),
        options::BenchCommand::DelayProxy(options) => commit::delay::serve(options),
        options::BenchCommand::ReadAll(options) => read_all::run(options),
        options::BenchCommand::Messenger(options) => messenger::run(options),
        options::BenchCommand::MessengerServer(options) => messenger::server::serve(options),
        options::BenchCommand::Pack(options) => pack::run(options),
        options::BenchCommand::Start(options) => start::run(options),
        options::BenchCommand::Idle(options) => idle::run(options),
        options::BenchCommand::Syscalls(options) => probe::syscalls::run(options),
        options::BenchCommand::System(options) => probe::system::run(options),
        options::BenchCommand::Report(options) => page::run(options),
        options::BenchCommand::Dataset(options) => options.dataset.dataset().write(&options.path),
        options::BenchCommand::FloorServer(options) => floor::serve(options),
    }
}
