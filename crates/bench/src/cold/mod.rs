//! `zodium-bench cold`: loads of objects that are not in memory, and their effect on other clients.

mod device;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};

use self::device::Device;
use crate::comparison::{Comparison, commands};
use crate::connection::Connection;
use crate::dataset::Dataset;
use crate::file_system::require_disk;
use crate::generator::{Generator, Load, Objects, Walk};
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::options::{Cell, ColdOptions, DatasetOptions};
use crate::reading::Reading;
use crate::result::{Measurement, Output, Sample, Shown};
use crate::server::{Data, Server, ServerCommand};

/// Number of objects for resident loads: few enough for any cache.
const RESIDENT_OBJECTS: u64 = 64;
/// A server's own cache holds at most one part in this many of the file.
const CACHE_SHARE: u64 = 4;
/// Neighbours share pages, so a measurement may load at most one in so many objects.
const WALK_SHARE: u64 = 3;
/// A server that uses less processor time than this in a step has settled.
const SETTLED_CPU: Duration = Duration::from_millis(4);
const SETTLE_STEP: Duration = Duration::from_millis(200);
const SETTLE_STEPS_MAX: usize = 300;
const SERIAL: Cell = Cell { clients: 1, in_flight: 1 };

/// What the clients of a measurement do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Load objects that are not in memory.
    Cold(Cell),
    /// One client loads resident objects one at a time, while others do this.
    Resident(Beside),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    Resident(Cell),
    Cold(Cell),
}

/// Measures and reports.
pub(crate) fn run(options: &ColdOptions) -> Result<()> {
    let mut comparison = Comparison::prepare(options.servers.folder.as_deref())?;
    require_disk(comparison.folder())?;
    let mut machine = Machine::here();
    machine.warn();
    let dataset = Arc::new(DatasetOptions::sized(options.objects, options.object_bytes).dataset());
    let kept = options.datasets.as_deref();
    let path = dataset.file(kept, comparison.folder(), &comparison.interrupt);
    let path = path.context("cannot write the dataset")?;
    require_disk(&path)?;
    let bytes = std::fs::metadata(&path)?.len();
    start(&mut comparison, options, &path, bytes)?;
    machine.versions.clone_from(&comparison.versions);
    settle(&comparison)?;

    let mut output = Output::begin(&options.output, machine);
    let walks = Walks::new(comparison.servers.iter().map(Server::label), dataset.len());
    let cold = Cold { options, walks, dataset, path, bytes };
    let (time, cases) = (&options.time, cold.cases());
    comparison.announce(time.rounds, cases.len(), (time.seconds + time.warm_up).as_secs_f64());
    let mut measured = cold.measurement();
    for round in 0..usize::from(time.rounds) {
        let device = cold.measure_device(&comparison, round)?;
        let device_us = device.values.get("p50_us").copied().unwrap_or(f64::NAN);
        output.take(&mut measured, device);
        for case in &cases {
            comparison.take_turn(round, |server| {
                let sample = cold.measure(&comparison, server, *case, round)?;
                let over = sample.values.get("p50_us").map_or(f64::NAN, |p50| p50 - device_us);
                let is_cold = matches!(case, Case::Cold(_));
                let sample = if is_cold { sample.value("over_device_us", over) } else { sample };
                output.take(&mut measured, sample);
                Ok(())
            })?;
        }
    }
    output.finish(measured);
    drop(comparison);
    output.write()
}

/// Starts the servers with one worker, and with caches for a part of the file.
fn start(
    comparison: &mut Comparison,
    options: &ColdOptions,
    path: &Path,
    bytes: u64,
) -> Result<()> {
    let mut own = options.servers.clone();
    own.workers.get_or_insert(1);
    if !own.zodium_option.iter().any(|option| option.starts_with("--cache-size")) {
        own.zodium_option.push(format!("--cache-size={}", bytes / CACHE_SHARE));
    }
    comparison.start(&own, Data::Copied(path))?;
    if let Some(microseconds) = options.busy_poll {
        let polling = |command: &ServerCommand| command.polling(microseconds);
        let servers: Vec<_> = commands(&own)?.iter().filter_map(polling).collect();
        comparison.start_all(&servers, Data::Copied(path))?;
    }
    Ok(())
}

/// Waits until all servers are idle: some read the whole file after a start.
fn settle(comparison: &Comparison) -> Result<()> {
    for server in &comparison.servers {
        let mut before = server.cpu_time()?;
        for _ in 0..SETTLE_STEPS_MAX {
            comparison.interrupt.sleep(SETTLE_STEP)?;
            let after = server.cpu_time()?;
            let used =
                after.as_ref().zip(before.as_ref()).map(|(after, before)| after.since(before));
            if used.is_none_or(|used| used < SETTLED_CPU) {
                break;
            }
            before = after;
        }
    }
    Ok(())
}

struct Cold<'a> {
    options: &'a ColdOptions,
    dataset: Arc<Dataset>,
    path: std::path::PathBuf,
    bytes: u64,
    walks: Walks,
}

/// The walks of the device and of each server: all load the same objects. A walk that several share
/// would bring a server back to an object after few others, while its cache may still have it.
struct Walks {
    device: Arc<Walk>,
    /// By label.
    servers: BTreeMap<String, Arc<Walk>>,
}

impl Walks {
    fn new(labels: impl Iterator<Item = String>, objects: u64) -> Walks {
        let walk = || Arc::new(Walk::new(objects));
        Walks { device: walk(), servers: labels.map(|label| (label, walk())).collect() }
    }

    fn of(&self, label: &str) -> Result<&Arc<Walk>> {
        self.servers.get(label).context("a server that came later has no walk")
    }
}

impl Cold<'_> {
    fn cases(&self) -> Vec<Case> {
        let beside = self.options.beside;
        let cold = self.options.cells.iter().map(|cell| Case::Cold(*cell));
        let resident = [Beside::Nothing, Beside::Resident(beside), Beside::Cold(beside)];
        cold.chain(resident.map(Case::Resident)).collect()
    }

    fn measurement(&self) -> Measurement {
        let time = &self.options.time;
        let title = format!(
            "Cold loads: {}, a file of {} MB; {} rounds of {} s, median (min-max)",
            self.dataset.description(),
            self.bytes / 1_000_000,
            time.rounds,
            time.seconds.as_secs_f64()
        );
        Measurement::new("Cold", title)
            .axis("loads", "loads")
            .axis("clients", "clients")
            .axis("in_flight", "in flight")
            .axis("beside", "beside")
            .axis("busy_poll", "busy poll us")
            .latency("p50", "p50 us", Shown::Spread)
            .column("over_device_us", "over device", Shown::SpreadIfAny)
            .go("over-device-ns", 1e3)
            .latency("p90", "p90", Shown::Median)
            .latency("p99", "p99", Shown::Spread)
            .column("requests_per_second", "requests/s", Shown::SpreadThousands)
            .go("req/s", 1.0)
            .column("server_cpu_us", "server CPU us/request", Shown::SpreadIfAny)
            .go("cpu-ns/op", 1e3)
            .latencies()
    }

    /// Reads the same places directly from the device, one after the other.
    fn measure_device(&self, comparison: &Comparison, round: usize) -> Result<Sample> {
        let mut device = Device::open(&self.path, self.bytes, self.options.object_bytes)?;
        let walk = &self.walks.device;
        let before = walk.taken();
        let taken = device.read_for(self.options.time.seconds, || {
            comparison.interrupt.check()?;
            Ok((walk.next(), self.dataset.len()))
        })?;
        self.check_walk(walk, before)?;
        let seconds = taken.seconds;
        let sample = Sample::new("device", "", round);
        Ok(case_of(sample, Case::Cold(SERIAL), 0)
            .value("requests", taken.latencies.len() as f64)
            .value("requests_per_second", taken.latencies.len() as f64 / seconds)
            .percentiles("", &taken.latencies)
            .distribution(&taken.latencies))
    }

    fn measure(
        &self,
        comparison: &Comparison,
        server: &Server,
        case: Case,
        round: usize,
    ) -> Result<Sample> {
        // A server that runs already may serve this very file.
        forget(server.data().unwrap_or(&self.path))?;
        let walk = self.walks.of(&server.label())?;
        let before_walk = walk.taken();
        let resident = Objects::AtRandom(RESIDENT_OBJECTS.min(self.dataset.len()));
        let cold = Objects::InTurns(Arc::clone(walk));
        self.load_resident(server, &comparison.interrupt)?;
        let (generator, others) = match case {
            Case::Cold(cell) => (self.generator(server, cell, cold)?, None),
            Case::Resident(beside) => {
                let others = match beside {
                    Beside::Nothing => None,
                    Beside::Resident(cell) => {
                        Some(self.generator(server, cell, resident.clone())?)
                    }
                    Beside::Cold(cell) => Some(self.generator(server, cell, cold)?),
                };
                (self.generator(server, SERIAL, resident)?, others)
            }
        };
        let replies = || generator.replies() + others.as_ref().map_or(0, |others| others.replies());
        comparison.interrupt.sleep(self.options.time.warm_up)?;
        generator.count_latencies(true);
        let (before, own_before, all_before) =
            (Reading::take(server)?, generator.replies(), replies());
        let happened = || generator.replies() > own_before || generator.has_ended();
        comparison.interrupt.sleep_until(self.options.time.seconds, happened)?;
        let used = before.until(&Reading::take(server)?);
        let (own, all) = (generator.replies() - own_before, replies() - all_before);
        generator.count_latencies(false);
        others.map(Generator::finish).transpose()?;
        let latencies = generator.finish()?;
        ensure!(own > 0, "no request was answered");
        self.check_walk(walk, before_walk)?;
        let sample = Sample::new(&server.name, server.asked.unwrap_or_default(), round);
        let sample = case_of(sample, case, server.busy_poll_us)
            .value("requests", own as f64)
            .value("requests_per_second", own as f64 / used.time.as_secs_f64());
        let sample = used.values(sample, all);
        Ok(sample.percentiles("", &latencies).distribution(&latencies))
    }

    fn generator(&self, server: &Server, cell: Cell, objects: Objects) -> Result<Generator> {
        let open = |_| Connection::open(server.address, server.protocol, &self.dataset);
        let connections: Result<Vec<Connection>> = (0..cell.clients).map(open).collect();
        Generator::start(connections?, 1, Load { objects, in_flight: cell.in_flight, seed: 1 })
    }

    /// Loads each of the resident objects once.
    fn load_resident(&self, server: &Server, interrupt: &Interrupt) -> Result<()> {
        let mut connection = Connection::open(server.address, server.protocol, &self.dataset)?;
        connection.sweep(RESIDENT_OBJECTS.min(self.dataset.len()), interrupt)
    }

    /// Fails if so many objects were loaded that some of them were in memory.
    fn check_walk(&self, walk: &Walk, before: u64) -> Result<()> {
        let (taken, objects) = (walk.taken() - before, self.dataset.len());
        ensure!(
            taken <= objects / WALK_SHARE,
            "{taken} cold loads of {objects} objects are too many to be all cold: give --objects \
             {} or more, or fewer --seconds",
            taken * (WALK_SHARE + 1)
        );
        Ok(())
    }
}

fn case_of(sample: Sample, case: Case, busy_poll_us: u32) -> Sample {
    let (loads, cell, beside) = match case {
        Case::Cold(cell) => ("cold", cell, "none".to_owned()),
        Case::Resident(beside) => ("resident", SERIAL, beside.name()),
    };
    sample
        .case("loads", loads)
        .case("clients", cell.clients)
        .case("in_flight", cell.in_flight)
        .case("beside", beside)
        .case("busy_poll", busy_poll_us)
}

impl Beside {
    fn name(self) -> String {
        let (what, Cell { clients, in_flight }) = match self {
            Beside::Nothing => return "none".to_owned(),
            Beside::Resident(cell) => ("resident", cell),
            Beside::Cold(cell) => ("cold", cell),
        };
        format!("{clients}x{in_flight} {what}")
    }
}

/// Evicts a file from the system's page cache.
fn forget(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_comes_back_to_an_object_after_all_others() {
        let names = ["one", "other"];
        let walks = Walks::new(names.into_iter().map(str::to_owned), 99);
        let mut loaded = [Vec::new(), Vec::new()];
        for _ in 0..99 {
            walks.device.next();
            for (name, loaded) in names.iter().zip(&mut loaded) {
                loaded.push(walks.of(name).unwrap().next());
            }
        }
        assert_eq!(loaded[0], loaded[1]);
        loaded[0].sort_unstable();
        assert!(loaded[0].iter().copied().eq(0..99));
        assert!(walks.of("third").is_err());
    }
}
