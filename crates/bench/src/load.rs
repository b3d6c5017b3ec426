//! `zodium-bench load`: the cost of loads on each server, cell by cell, round by round.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::comparison::{Comparison, commands, floor};
use crate::connection::Connection;
use crate::dataset::Dataset;
use crate::machine::Machine;
use crate::matrix::{Matrix, columns};
use crate::options::LoadOptions;
use crate::result::{Measurement, Output, Sample};
use crate::server::{Data, Server, ServerCommand};
use crate::system_calls::{Count, SystemCalls};
use crate::wire::Protocol;

/// Measures and reports.
pub(crate) fn run(options: &LoadOptions) -> Result<()> {
    let mut comparison = Comparison::prepare(options.servers.folder.as_deref())?;
    let mut machine = Machine::here();
    machine.warn();
    let dataset = Arc::new(options.dataset.dataset());
    let kept = options.dataset.datasets.as_deref();
    let path = dataset.file(kept, comparison.folder(), &comparison.interrupt);
    let path = path.context("cannot write the dataset")?;
    start(&mut comparison, options, &path)?;
    machine.versions.clone_from(&comparison.versions);

    let matrix = Matrix {
        dataset,
        time: &options.time,
        threads: options.threads.into(),
        seed: options.dataset.seed,
    };
    let loads = Loads { options, matrix };
    let mut output = Output::begin(&options.output, machine);
    for server in &comparison.servers {
        load_all(server, &loads.matrix.dataset, &comparison)
            .with_context(|| server.last_words())?;
    }
    let time = &options.time;
    let each = (time.seconds + time.warm_up).as_secs_f64();
    comparison.announce(time.rounds, options.cells.len(), each);
    let mut measured = loads.measurement();
    comparison.take_turns(time.rounds, &options.cells, |server, cell, round| {
        let sample = loads.matrix.measure(&comparison, server, *cell, round)?;
        output.take(&mut measured, sample);
        Ok(())
    })?;
    output.finish(measured);
    if options.syscalls {
        output.finish(loads.count_system_calls(&comparison)?);
    }
    drop(comparison);
    output.write()
}

/// Starts the servers, and with busy polling also a second one of each that can poll.
fn start(comparison: &mut Comparison, options: &LoadOptions, path: &Path) -> Result<()> {
    let floor = floor(&options.servers, &options.dataset)?;
    comparison.start(&options.servers, Data::Copied(path))?;
    comparison.start_all(floor.as_slice(), Data::New)?;
    if let Some(microseconds) = options.busy_poll {
        let polling = |command: &ServerCommand| command.polling(microseconds);
        let servers: Vec<_> = commands(&options.servers)?.iter().filter_map(polling).collect();
        comparison.start_all(&servers, Data::Copied(path))?;
        let floor: Vec<_> = floor.iter().filter_map(polling).collect();
        comparison.start_all(&floor, Data::New)?;
    }
    Ok(())
}

/// Loads every object once. After that the server has everything in memory, and wrong data would
/// have been found.
pub(crate) fn load_all(
    server: &Server,
    dataset: &Arc<Dataset>,
    comparison: &Comparison,
) -> Result<()> {
    let mut connection = Connection::open(server.address, server.protocol, dataset)?;
    connection.sweep(dataset.len(), &comparison.interrupt)?;
    let wire = connection.wire_name();
    if let (Protocol::Zeo, Some(asked)) = (server.protocol, server.asked)
        && wire != asked
    {
        eprintln!("warning: {} speaks {wire}, not {asked}", server.name);
    }
    Ok(())
}

struct Loads<'a> {
    options: &'a LoadOptions,
    matrix: Matrix<'a>,
}

impl Loads<'_> {
    fn measurement(&self) -> Measurement {
        let time = &self.options.time;
        let title = format!(
            "Loads at random: {}; {} rounds of {} s, median (min-max)",
            self.matrix.dataset.description(),
            time.rounds,
            time.seconds.as_secs_f64()
        );
        let mut measured = columns(Measurement::new("Load", title));
        if self.options.busy_poll.is_some() {
            measured = measured.axis("busy_poll", "busy poll us");
        }
        measured
            .ratio("server_cpu_us", "zodium", "CPU: zodium / it")
            .ratio("p50_us", "zodium", "p50: zodium / it")
            .curve("clients", "requests_per_second")
            .curve("clients", "server_cpu_us")
            .latencies()
    }

    /// Counts system calls in one more round, in which nothing else is measured.
    fn count_system_calls(&self, comparison: &Comparison) -> Result<Measurement> {
        let title = "System calls of the server for each request (another round, with strace)";
        let mut measured = Measurement::new("LoadSyscalls", title.to_owned())
            .axis("clients", "clients")
            .axis("in_flight", "in flight");
        if self.options.busy_poll.is_some() {
            measured = measured.axis("busy_poll", "busy poll us");
        }
        let mut counts: Vec<(Sample, Option<Count>)> = Vec::new();
        comparison.take_turns(1, &self.options.cells, |server, cell, round| {
            let (generator, wire) = self.matrix.start(server, *cell, round)?;
            comparison.interrupt.sleep(self.options.time.warm_up)?;
            let tracing = SystemCalls::begin(server, comparison.folder())?;
            let before = generator.replies();
            let happened = || generator.replies() > before || generator.has_ended();
            comparison.interrupt.sleep_until(self.options.time.seconds, happened)?;
            let requests = generator.replies() - before;
            let count = tracing.and_then(SystemCalls::end);
            generator.finish()?;
            let sample = Sample::new(&server.name, wire, round)
                .case("clients", cell.clients)
                .case("in_flight", cell.in_flight)
                .case("busy_poll", server.busy_poll_us)
                .value("requests", requests as f64);
            counts.push((sample, count));
            Ok(())
        })?;
        crate::system_calls::fill(&mut measured, counts, "requests");
        Ok(measured)
    }
}
