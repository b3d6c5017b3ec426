//! `zodium-bench resp`: what a request costs our RESP server, beside Valkey and the floor; and
//! memory per key.

mod lister;
mod memory;
mod processors;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use lister::Lister;

use crate::comparison::Comparison;
use crate::connection::Connection;
use crate::dataset::Dataset;
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::matrix::{Matrix, columns};
use crate::options::{DatasetOptions, RespOptions};
use crate::programs;
use crate::resp_requests::RespRequests;
use crate::result::{Measurement, Output};
use crate::server::{Data, Server, ServerCommand};
use crate::wire::Wire;

/// Measures and reports.
pub(crate) fn run(options: &RespOptions) -> Result<()> {
    let mut comparison = Comparison::prepare(None)?;
    let mut machine = Machine::here();
    machine.warn();
    comparison.versions.push(programs::zodium_version(&options.program)?);
    let commands = commands(options)?;
    machine.versions.clone_from(&comparison.versions);
    let mut output = Output::begin(&options.output, machine);
    if options.memory_keys > 0 {
        memory::measure(options, &mut comparison, &commands, &mut output)?;
    }
    let mut measured = requests(options);
    for bytes in &options.value_bytes {
        measure(options, &mut comparison, &commands, *bytes, |sample| {
            output.take(&mut measured, sample);
        })?;
    }
    drop(comparison);
    output.finish(measured);
    output.write()
}

/// The servers: ours with one worker, Valkey with one thread, and peers.
fn commands(options: &RespOptions) -> Result<Vec<ServerCommand>> {
    let program = programs::zodium(&options.program)?;
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let workers = if options.beside_keys { "--workers=2" } else { "--workers=1" };
    let ours = ["resp", "-a", "127.0.0.1:{port}", workers, "--log-level=warn"];
    let mut commands = vec![ServerCommand::resp("zodium", &program, words(&ours))];
    if let Some(tree) = &options.valkey {
        let program = std::path::absolute(tree)?.join("src/valkey-server");
        let shown = program.display();
        ensure!(
            program.is_file(),
            "{shown} is missing: build Valkey in the tree of --valkey first"
        );
        let stock = ["--port", "{port}", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        commands.push(ServerCommand::resp("valkey", &program, words(&stock)));
    }
    commands.extend(options.peer.iter().map(ServerCommand::resp_peer));
    Ok(commands)
}

fn requests(options: &RespOptions) -> Measurement {
    let time = &options.time;
    let title = format!(
        "Requests to RESP servers: {} keys of 16 bytes by chance, {} GET for each SET; {} rounds \
         of {} s, median (min-max)",
        options.keys,
        options.reads,
        time.rounds,
        time.seconds.as_secs_f64()
    );
    let mut measured = columns(Measurement::new("Resp", title).axis("value_bytes", "value bytes"))
        .ratio("server_cpu_us", "zodium", "CPU: zodium / it")
        .ratio("p50_us", "zodium", "p50: zodium / it")
        .bars("server_cpu_us")
        .latencies();
    measured.note(match options.is_pinned() {
        true => "Servers were pinned to the first processor, and clients to the last.",
        false => "Servers and clients ran on all processors.",
    });
    if options.beside_keys {
        measured.note("One more client listed all keys again and again. Zodium had two workers.");
    }
    measured.note("All values were verified.");
    measured
}

/// Measures all cells with values of one size.
fn measure(
    options: &RespOptions,
    comparison: &mut Comparison,
    commands: &[ServerCommand],
    bytes: u32,
    mut take: impl FnMut(crate::result::Sample),
) -> Result<()> {
    let dataset = DatasetOptions::sized(options.keys, bytes);
    let mut commands = commands.to_vec();
    if !options.beside_keys {
        commands.push(ServerCommand::resp_floor(&programs::own()?, &dataset));
    }
    start(comparison, &commands)?;
    let dataset = Arc::new(dataset.dataset());
    for server in &comparison.servers {
        eprintln!("setting {} in {}", dataset.description(), server.name);
        let filled = fill(server, &dataset, &comparison.interrupt);
        filled.with_context(|| server.last_words())?;
        if options.is_pinned() {
            processors::pin_server(server)?;
        }
    }
    let _pinned = options.is_pinned().then(processors::pin_clients).transpose()?;
    let time = &options.time;
    let matrix = Matrix { dataset: Arc::clone(&dataset), time, threads: 1, seed: 1 };
    let each = (time.seconds + time.warm_up).as_secs_f64();
    comparison.announce(time.rounds, options.cells.len(), each);
    comparison.take_turns(time.rounds, &options.cells, |server, cell, round| {
        let open = |_| connect(server, &dataset, RespRequests::reading(options.reads));
        let connections = (0..cell.clients).map(open).collect::<Result<Vec<_>>>()?;
        let _lister = options.beside_keys.then(|| Lister::start(server.address)).transpose()?;
        let interrupt = &comparison.interrupt;
        let sample = matrix.measure_over(interrupt, server, connections, *cell, round)?;
        take(sample.case("value_bytes", bytes));
        Ok(())
    })
}

/// Stops the servers that run, and starts new ones.
fn start(comparison: &mut Comparison, commands: &[ServerCommand]) -> Result<()> {
    let folder = comparison.folder().to_owned();
    comparison.servers.clear();
    comparison.start_in(Some(Path::new(&folder)), commands, Data::New)
}

fn connect(server: &Server, dataset: &Arc<Dataset>, requests: RespRequests) -> Result<Connection> {
    let stream = crate::connection::connect(server.address)?;
    Ok(Connection::over(stream, Wire::Resp(requests.of(dataset)), dataset))
}

/// Sets all keys.
fn fill(server: &Server, dataset: &Arc<Dataset>, interrupt: &Interrupt) -> Result<()> {
    let mut connection = connect(server, dataset, RespRequests::writing())?;
    connection.sweep(dataset.len(), interrupt)
}
