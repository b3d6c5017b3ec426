//! `zodium-bench start`: time from the start of a process to its first reply, and its memory.
//!
//! One server runs at a time. Each start gets a new folder with a hard link to the data file and
//! the side files of the case. So no start is faster because of files that an earlier one left.

mod files;
mod report;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use zodium_types::Oid;

use self::report::StartMetrics;
use crate::comparison::{Comparison, commands};
use crate::connection::{Connection, Scratch};
use crate::dataset::Dataset;
use crate::file_system::require_disk;
use crate::load::load_all;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::options::{Beside, DatasetOptions, Source, StartOptions};
use crate::result::{Output, Sample};
use crate::server::{Server, ServerCommand};

/// Interval between connection attempts to a starting server, and so the resolution.
const POLL: Duration = Duration::from_micros(500);
/// ZEO/py takes minutes to read a file of ten million objects.
const PATIENCE: Duration = Duration::from_secs(1800);

/// A case: what a server finds when it starts.
#[derive(Clone, Copy, Debug)]
struct Case {
    beside: Beside,
    source: Source,
}

/// Measures and reports.
pub(crate) fn run(options: &StartOptions) -> Result<()> {
    // On the file system of the dataset, so that the file can be linked.
    let folder = options.servers.folder.as_deref().or(options.datasets.as_deref());
    let mut comparison = Comparison::prepare(folder)?;
    if options.source.contains(&Source::Disk) {
        require_disk(comparison.folder())?;
    }
    let mut machine = Machine::here();
    machine.warn();
    comparison.note_versions(&options.servers.program, options.servers.zeo_python.as_deref())?;
    machine.versions.clone_from(&comparison.versions);
    let dataset = Arc::new(options.dataset().dataset());
    eprintln!("the file: {}", dataset.description());
    let kept = options.datasets.as_deref();
    let path = dataset.file(kept, comparison.folder(), &comparison.interrupt);
    let path = path.context("cannot write the dataset")?;
    let starts = Starts { options, comparison, dataset, path: &path };
    let commands = commands(&options.servers)?;
    let mut output = Output::begin(&options.output, machine);
    starts.measure_times(&commands, &mut output)?;
    if !options.no_memory {
        starts.measure_memory(&commands, &mut output)?;
    }
    drop(starts);
    output.write()
}

struct Starts<'a> {
    options: &'a StartOptions,
    comparison: Comparison,
    dataset: Arc<Dataset>,
    path: &'a Path,
}

/// A server that has sent its first reply.
struct Started {
    server: Server,
    wire: &'static str,
    seconds: f64,
    cpu_seconds: f64,
}

impl Starts<'_> {
    fn cases(&self) -> Vec<Case> {
        let sources = self.options.source.iter();
        let case = |source: &Source| {
            let source = *source;
            self.options.beside.iter().map(move |beside| Case { beside: *beside, source })
        };
        sources.flat_map(case).collect()
    }

    fn measure_times(&self, commands: &[ServerCommand], output: &mut Output<'_>) -> Result<()> {
        let file_bytes = std::fs::metadata(self.path)?.len();
        let title = self.dataset.description();
        let mut indexed = report::indexed(&title, self.options.rounds);
        let mut scanned = report::scanned(&title, file_bytes, self.options.rounds);
        for round in 0..usize::from(self.options.rounds) {
            for case in self.cases() {
                for place in 0..commands.len() {
                    let command = &commands[(place + round) % commands.len()];
                    if case.beside.is_zodium_only() && command.name == "zeo" {
                        continue;
                    }
                    let started = self.start(command, case, self.path, &self.dataset)?;
                    let sample = started.sample(case, round);
                    let measured = match case.beside.has_index() {
                        true => &mut indexed,
                        false => &mut scanned,
                    };
                    output.take(measured, report::rates(sample, file_bytes));
                }
            }
        }
        for measured in [indexed, scanned] {
            if !measured.samples.is_empty() {
                output.finish(measured);
            }
        }
        Ok(())
    }

    fn measure_memory(&self, commands: &[ServerCommand], output: &mut Output<'_>) -> Result<()> {
        let case = Case { beside: Beside::All, source: Source::Memory };
        let small = Arc::new(DatasetOptions::sized(1, self.options.object_bytes).dataset());
        let small_folder = self.comparison.folder().join("one-object");
        std::fs::create_dir(&small_folder)?;
        let small_path = small.file(None, &small_folder, &self.comparison.interrupt)?;
        let mut measured = report::memory(&self.dataset.description());
        for command in commands {
            let empty = self.start(command, case, &small_path, &small)?.memory()?;
            let started = self.start(command, case, self.path, &self.dataset)?;
            let first = started.memory()?;
            load_all(&started.server, &self.dataset, &self.comparison)
                .with_context(|| started.server.last_words())?;
            let metrics = StartMetrics {
                objects: self.dataset.len(),
                empty,
                first,
                loaded: started.memory()?,
            };
            output.take(&mut measured, metrics.sample(&started.server.name, started.wire));
        }
        output.finish(measured);
        Ok(())
    }

    /// Starts a server on a file in a new folder; the next start removes it.
    fn start(
        &self,
        command: &ServerCommand,
        case: Case,
        path: &Path,
        dataset: &Arc<Dataset>,
    ) -> Result<Started> {
        self.comparison.interrupt.check()?;
        let folder = self.comparison.folder().join("start");
        files::provide(&folder, path, case.beside)?;
        files::bring(&folder, case.source)?;
        let began = Instant::now();
        let mut server = Server::launch(command, &folder)?;
        server.wait_until_ready(POLL, PATIENCE, &self.comparison.interrupt)?;
        let mut connection = Connection::open(server.address, server.protocol, dataset)?;
        connection.ask(Oid(dataset.len() - 1))?;
        connection.send()?;
        let mut scratch = Scratch::new();
        while !connection.is_idle() {
            connection.receive(&mut scratch, |_| {}).with_context(|| server.last_words())?;
        }
        let seconds = began.elapsed().as_secs_f64();
        let cpu = server.cpu_time()?.unwrap_or_default().total();
        let wire = connection.wire_name();
        Ok(Started { server, wire, seconds, cpu_seconds: cpu.as_secs_f64() })
    }
}

impl Started {
    fn sample(&self, case: Case, round: usize) -> Sample {
        Sample::new(&self.server.name, self.wire, round)
            .case("beside", case.beside.name())
            .case("source", case.source.name())
            .value("seconds", self.seconds)
            .value("cpu_seconds", self.cpu_seconds)
    }

    fn memory(&self) -> Result<Memory> {
        let pid = self.server.process_id().context("a server that was not started here")?;
        Memory::of_process(pid)
    }
}
