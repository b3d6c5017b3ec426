//! `zodium-bench messenger`: measures the link layer alone.

pub(crate) mod server;

use std::sync::Arc;

use anyhow::Result;
use zodium_net::Limits;

use crate::comparison::Comparison;
use crate::machine::Machine;
use crate::matrix::{Matrix, columns};
use crate::options::{Cell, DatasetOptions, MessengerOptions, Variant};
use crate::programs;
use crate::result::{Measurement, Output, Sample, Shown};
use crate::server::{Data, ServerCommand};

/// Most bytes in all blocks together.
const BLOCKS_BYTES_MAX: u64 = 256 << 20;

/// Measures and reports.
pub(crate) fn run(options: &MessengerOptions) -> Result<()> {
    let mut comparison = Comparison::prepare(None)?;
    let machine = Machine::here();
    machine.warn();
    let mut output = Output::begin(&options.output, machine);
    let mut measured = columns(Measurement::new("Messenger", title(options)))
        .axis("block_bytes", "block bytes")
        .axis("blocks", "blocks")
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
    for bytes in &options.block_bytes {
        for blocks in options.blocks.iter().map(|all| blocks(*all, *bytes)) {
            measure(options, &mut comparison, &cases, *bytes, blocks, |sample| {
                output.take(&mut measured, sample);
            })?;
        }
    }
    drop(comparison);
    output.finish(measured);
    output.write()
}

/// Measures all variants with so many blocks of one size.
fn measure(
    options: &MessengerOptions,
    comparison: &mut Comparison,
    cases: &[Cell],
    bytes: u32,
    blocks: u64,
    mut take: impl FnMut(Sample),
) -> Result<()> {
    let MessengerOptions { time, .. } = options;
    let dataset = DatasetOptions::sized(blocks, bytes);
    let folder = comparison.folder().to_owned();
    comparison.servers.clear();
    comparison.start_in(Some(&folder), &commands(options, &dataset)?, Data::New)?;
    let matrix = Matrix { dataset: Arc::new(dataset.dataset()), time, threads: 1, seed: 1 };
    let each = (time.seconds + time.warm_up).as_secs_f64();
    comparison.announce(time.rounds, cases.len(), each);
    comparison.take_turns(time.rounds, cases, |server, cell, round| {
        if server.name == Variant::Unthrottled.name() && !is_throttled(*cell, bytes) {
            return Ok(());
        }
        let sample = matrix.measure(comparison, server, *cell, round)?;
        let rate = sample.values.get("requests_per_second").copied().unwrap_or_default();
        let sample = sample.case("block_bytes", bytes).case("blocks", blocks);
        take(sample.value("megabytes_per_second", rate * f64::from(bytes) / 1e6));
        Ok(())
    })
}

/// As many blocks as asked for, unless they would take too much memory.
fn blocks(asked: u64, bytes: u32) -> u64 {
    asked.min(BLOCKS_BYTES_MAX / u64::from(bytes.max(1))).max(1)
}

/// Whether the answers in flight can reach the limit of back-pressure.
fn is_throttled(cell: Cell, bytes: u32) -> bool {
    cell.in_flight.saturating_mul(bytes as usize) > Limits::default().output_bytes_high
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
