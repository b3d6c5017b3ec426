//! `zodium-bench idle`: the cost of idle connections.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::BytesMut;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zodium_zeo::codec::{Encoding, encode_heartbeat};

use crate::comparison::Comparison;
use crate::connection::Connection;
use crate::cpu::context_switches;
use crate::dataset::Dataset;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::options::{DatasetOptions, IdleOptions};
use crate::reading::Reading;
use crate::result::{Measurement, Output, Sample, Shown};
use crate::server::{Data, Server};

const OBJECT_BYTES: u32 = 1000;

/// So many connections, each with periodic heartbeats.
#[derive(Clone, Copy, Debug)]
struct Case {
    connections: u16,
    /// Seconds between heartbeats; 0: none.
    heartbeat_seconds: u16,
}

/// Measures and reports.
pub(crate) fn run(options: &IdleOptions) -> Result<()> {
    raise_open_files()?;
    let mut comparison = Comparison::prepare(options.servers.folder.as_deref())?;
    let mut machine = Machine::here();
    machine.warn();
    let dataset = Arc::new(DatasetOptions::sized(options.objects, OBJECT_BYTES).dataset());
    let path = dataset.file(None, comparison.folder(), &comparison.interrupt);
    let path = path.context("cannot write the dataset")?;
    comparison.start(&options.servers, Data::Copied(&path))?;
    machine.versions.clone_from(&comparison.versions);
    let idleness = Idleness { options, comparison, dataset };
    let cases = cases(options);
    let each = (options.seconds + options.warm_up).as_secs_f64();
    idleness.comparison.announce(options.rounds, cases.len(), each);
    let mut output = Output::begin(&options.output, machine);
    let mut measured = idleness.measurement();
    idleness.comparison.take_turns(options.rounds, &cases, |server, case, round| {
        output.take(&mut measured, idleness.measure(server, *case, round)?);
        Ok(())
    })?;
    drop(idleness);
    output.finish(measured);
    output.write()
}

fn cases(options: &IdleOptions) -> Vec<Case> {
    let mut cases = Vec::new();
    for connections in options.connections.iter().copied() {
        let heartbeats = options.heartbeats.iter().copied();
        // Without connections there are no heartbeats.
        let heartbeats = heartbeats.filter(|seconds| connections > 0 || *seconds == 0);
        cases.extend(heartbeats.map(|heartbeat_seconds| Case { connections, heartbeat_seconds }));
    }
    cases
}

/// Raises the limit of open files for many connections.
fn raise_open_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")
}

struct Idleness<'a> {
    options: &'a IdleOptions,
    comparison: Comparison,
    dataset: Arc<Dataset>,
}

impl Idleness<'_> {
    fn measurement(&self) -> Measurement {
        let title = format!(
            "Idle connections; {} rounds of {} s, median (min-max)",
            self.options.rounds,
            self.options.seconds.as_secs_f64()
        );
        let mut measured = Measurement::new("Idle", title)
            .axis("connections", "connections")
            .axis("heartbeat_seconds", "heartbeat every s")
            .column("cpu_percent", "CPU %", Shown::Spread)
            .go("cpu-%", 1.0)
            .column("switches_per_second", "context switches/s", Shown::Spread)
            .go("switches/s", 1.0)
            .column("resident_mb", "MB", Shown::Median)
            .go("MB", 1.0)
            .column("kilobytes_per_connection", "kB/connection", Shown::Median)
            .go("kB/connection", 1.0)
            .ratio("switches_per_second", "zodium", "switches: zodium / it")
            .bars("cpu_percent");
        measured.note(
            "Clients have registered and send no requests; 100 % is one processor. kB/connection: \
             growth of resident memory per opened connection; memory freed before is reused \
             first.",
        );
        measured
    }

    fn measure(&self, server: &Server, case: Case, round: usize) -> Result<Sample> {
        let process =
            server.process_id().context("servers that run elsewhere cannot be watched")?;
        let before = Memory::of_process(process)?;
        let open = |_| Connection::open(server.address, server.protocol, &self.dataset);
        let connections: Vec<Connection> =
            (0..case.connections).map(open).collect::<Result<_>>()?;
        let wire =
            connections.first().map_or(server.asked.unwrap_or_default(), Connection::wire_name);
        self.comparison.interrupt.sleep(self.options.warm_up)?;
        let resident = Memory::of_process(process)?.resident;
        let (start, switches) = (Reading::take(server)?, context_switches(process)?);
        self.watch(&connections, wire, case)?;
        let used = start.until(&Reading::take(server)?);
        let switches = context_switches(process)?.saturating_sub(switches);
        let seconds = used.time.as_secs_f64();
        let cpu = used.server_cpu.unwrap_or_default().as_secs_f64();
        let grown = resident.saturating_sub(before.resident) as f64;
        Ok(Sample::new(&server.name, wire, round)
            .case("connections", case.connections)
            .case("heartbeat_seconds", case.heartbeat_seconds)
            .value("cpu_percent", cpu / seconds * 100.0)
            .value("switches_per_second", switches as f64 / seconds)
            .value("resident_mb", resident as f64 / 1e6)
            .value("kilobytes_per_connection", grown / 1e3 / f64::from(case.connections)))
    }

    /// Waits for the duration of the case, sending heartbeats evenly spread over the connections.
    fn watch(&self, connections: &[Connection], wire: &str, case: Case) -> Result<()> {
        let began = Instant::now();
        let left = || self.options.seconds.saturating_sub(began.elapsed());
        if case.heartbeat_seconds == 0 || connections.is_empty() {
            return self.comparison.interrupt.sleep(left());
        }
        let encoding = if wire == "M5" { Encoding::Msgpack } else { Encoding::Pickle };
        let mut heartbeat = BytesMut::new();
        encode_heartbeat(encoding, &mut heartbeat);
        let period = Duration::from_secs(case.heartbeat_seconds.into());
        let step = period / u32::from(case.connections);
        let mut due = step;
        for connection in connections.iter().cycle() {
            let wait = due.saturating_sub(began.elapsed()).min(left());
            self.comparison.interrupt.sleep(wait)?;
            if left().is_zero() {
                break;
            }
            connection.stream().write_all(&heartbeat).context("cannot send a heartbeat")?;
            due += step;
        }
        Ok(())
    }
}
