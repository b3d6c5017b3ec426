//! The `zodium-bench` program: benchmarks of servers, in one run with their peers and with what
//! the hardware allows.
//!
//! Key decision: a program of its own, so that the server's holds no load generators. Each server
//! is a process too, so that its CPU time is separate from the load generator's.
//! The generator is native and checks every byte that it receives. Peers take turns within each
//! round, so that a disturbance of the machine affects all of them.
//!
//! Invariant: the benchmarks never reach into a server. All are reached over a socket, ours
//! included. `rcu` compares parts of servers, and has none.

#![forbid(unsafe_code)]

mod child;
mod client;
mod cold;
mod commit;
mod comparison;
mod connection;
mod cpu;
mod dataset;
mod file_system;
mod floor;
mod generator;
mod idle;
mod interrupt;
mod load;
mod machine;
mod matrix;
mod memory;
mod messenger;
mod neo;
mod neo_reply;
mod options;
mod pack;
mod page;
mod probe;
mod processors;
mod programs;
mod rcu;
mod read_all;
mod reading;
mod reply;
mod resp;
mod resp_requests;
mod result;
mod server;
mod start;
mod statistics;
mod system_calls;
mod verifier;
mod wire;

use std::process::ExitCode;

use clap::Parser;

use self::interrupt::Interrupt;
use self::options::{BenchCommand, BenchOptions};

fn main() -> ExitCode {
    match run(&BenchOptions::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zodium-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a benchmark. Errors are for people: what failed, with the last lines of a server's log.
fn run(options: &BenchOptions) -> anyhow::Result<()> {
    match &options.command {
        BenchCommand::Load(options) => load::run(options),
        BenchCommand::Cold(options) => cold::run(options),
        BenchCommand::Commit(options) => commit::run(options),
        BenchCommand::Client(options) => client::run(options),
        BenchCommand::ClientDriver(options) => client::native::drive(options),
        BenchCommand::DelayProxy(options) => commit::delay::serve(options),
        BenchCommand::ReadAll(options) => read_all::run(options),
        BenchCommand::Messenger(options) => messenger::run(options),
        BenchCommand::MessengerServer(options) => messenger::server::serve(options),
        BenchCommand::Neo(options) => neo::run(options),
        BenchCommand::Pack(options) => pack::run(options),
        BenchCommand::Start(options) => start::run(options),
        BenchCommand::Idle(options) => idle::run(options),
        BenchCommand::Rcu(options) => rcu::run(options),
        BenchCommand::Resp(options) => resp::run(options),
        BenchCommand::Syscalls(options) => probe::syscalls::run(options),
        BenchCommand::System(options) => probe::system::run(options),
        BenchCommand::Report(options) => page::run(options),
        BenchCommand::Dataset(options) => {
            options.dataset.dataset().write(&options.path, &Interrupt::listen()?)
        }
        BenchCommand::FloorServer(options) => floor::serve(options),
    }
}
