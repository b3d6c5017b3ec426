//! Benchmarks of servers, in the same run beside their peers and beside what the hardware allows.
//!
//! Servers are processes of their own, so that their CPU time can be told from the load
//! generator's; the generator is native and checks every byte it gets. Peers take turns within
//! each round: what disturbs the machine for a while disturbs all of them.
//!
//! Invariant: nothing here reaches into a server. All are spoken to over a socket, ours included.

#![forbid(unsafe_code)]

mod connection;
mod cpu;
mod dataset;
mod floor;
mod generator;
mod interrupt;
mod load;
mod machine;
mod options;
mod pack;
mod reply;
mod report;
mod server;
mod statistics;
mod wire;

pub use options::BenchOptions;

/// Runs what was asked for. Errors are for people: what failed, and of a server its last words.
pub fn run(options: &BenchOptions) -> anyhow::Result<()> {
    match &options.command {
        options::BenchCommand::Load(options) => load::run(options),
        options::BenchCommand::Pack(options) => pack::run(options),
        options::BenchCommand::FloorServer(options) => floor::serve(options),
    }
}
