//! `zodium-bench messenger`: measures the link layer alone.

pub(crate) mod server;

use std::sync::Arc;

use anyhow::Result;

use crate::comparison::Comparison;
use crate::machine::Machine;
use crate::matrix::{Matrix, columns};
use crate::options::{Cell, DatasetOptions, MessengerOptions};
use crate::programs;
use crate::result::{Measurement, Output, Shown};
use crate::server::{Data, ServerCommand};

/// Number of blocks of each size: they fit a processor's cache.
const BLOCKS: u64 = 64;

/// Measures and reports.
pub(crate) fn run(options: &MessengerOptions) -> Result<()> {
    let mut comparison = Comparison::prepare(None)?;
    let machine = Machine::here();
    machine.warn();
    let mut output = Output::begin(&options.output, machine);
    let mut measured = columns(Measurement::new("Messenger", title(options)))
        .axis("block_bytes", "block bytes")
        .column("megabytes_per_second", "MB/s", Shown::Median)
        .go("MB/s", 1.0)
        .ratio("server_cpu_us", "base", "CPU: base / it")
        .bars("server_cpu_us")
        .latencies();
    let cases: Vec<Cell> = options
        .depths
        .iter()
        .map(|depth| Cell { clients: 1, in_flight: usize::from(*depth) })
        .collect();
    let folder = comparison.folder().to_owned();
    for bytes in &options.block_bytes {
        comparison.servers.clear();
        let blocks = DatasetOptions::sized(BLOCKS, *bytes);
        comparison.start_in(Some(&folder), &commands(options, &blocks)?, Data::New)?;
        let dataset = Arc::new(blocks.dataset());
        let matrix = Matrix { dataset, time: &options.time, threads: 1, seed: 1 };
        comparison.announce(
            options.time.rounds,
            cases.len(),
            (options.time.seconds + options.time.warm_up).as_secs_f64(),
        );
        comparison.take_turns(options.time.rounds, &cases, |server, cell, round| {
            let sample = matrix.measure(&comparison, server, *cell, round)?;
            let rate = sample.values.get("requests_per_second").copied().unwrap_or_default();
            let sample = sample
                .case("block_bytes", bytes)
                .value("megabytes_per_second", rate * f64::from(*bytes) / 1e6);
            output.take(&mut measured, sample);
            Ok(())
        })?;
    }
    drop(comparison);
    output.finish(measured);
    output.write()
}

fn title(options: &MessengerOptions) -> String {
    let time = &options.time;
    format!(
        "Blocks through the link layer, no storage; {} rounds of {} s, median (min-max)",
        time.rounds,
        time.seconds.as_secs_f64()
    )
}

fn commands(options: &MessengerOptions, blocks: &DatasetOptions) -> Result<Vec<ServerCommand>> {
    let program = programs::own()?;
    let variant = |name: &str| {
        let arguments = ["messenger-server", "--port={port}", &format!("--variant={name}")];
        let arguments = arguments.map(str::to_owned).to_vec();
        ServerCommand::raw(name, &program, arguments, blocks)
    };
    let mut commands: Vec<ServerCommand> =
        options.variants.iter().map(|name| variant(name.name())).collect();
    commands.push(ServerCommand::floor(&program, blocks));
    Ok(commands)
}
