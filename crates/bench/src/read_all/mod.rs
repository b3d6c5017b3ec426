//! `zodium-bench read-all`: reads every object once, one after the other.

mod python;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use zodium_types::Oid;

use self::python::Python;
use crate::comparison::{Comparison, floor};
use crate::connection::{Connection, Scratch};
use crate::dataset::Dataset;
use crate::interrupt::Interrupt;
use crate::load::load_all;
use crate::machine::Machine;
use crate::options::{Checksum, ReadAllOptions};
use crate::programs::absolute;
use crate::reading::Reading;
use crate::result::{Latencies, Measurement, Output, Sample, Shown};
use crate::server::{Data, Server};
use crate::verifier::{Sum, Verifier};

/// The name of the row that computes the checksum over data in memory.
const MEMORY: &str = "memory";

/// Measures and reports.
pub(crate) fn run(options: &ReadAllOptions) -> Result<()> {
    let mut comparison = Comparison::prepare(options.servers.folder.as_deref())?;
    let mut machine = Machine::here();
    machine.warn();
    let dataset = Arc::new(options.dataset.dataset());
    let kept = options.dataset.datasets.as_deref();
    let path = dataset.file(kept, comparison.folder(), &comparison.interrupt);
    let path = path.context("cannot write the dataset")?;
    comparison.start(&options.servers, Data::Copied(&path))?;
    let floor = floor(&options.servers, &options.dataset)?;
    comparison.start_all(floor.as_slice(), Data::New)?;
    machine.versions.clone_from(&comparison.versions);
    let program = options.servers.zeo_python.as_deref().map(absolute).transpose()?;
    let python = program.map(|program| Python { program, path });

    for server in &comparison.servers {
        load_all(server, &dataset, &comparison).with_context(|| server.last_words())?;
    }
    let reading = ReadAll { options, dataset: &dataset };
    let mut output = Output::begin(&options.output, machine);
    let each = (options.time.seconds + options.time.warm_up).as_secs_f64();
    comparison.announce(options.time.rounds, options.checksums.len(), each);
    let mut measured = reading.measurement();
    for round in 0..usize::from(options.time.rounds) {
        for checksum in options.checksums.iter().copied() {
            let expected = expected(&dataset, checksum);
            comparison.take_turn(round, |server| {
                let sample = reading.measure(server, checksum, &expected, round)?;
                output.take(&mut measured, sample);
                Ok(())
            })?;
            if let Some(python) = &python {
                let sample = reading.in_python(
                    python,
                    checksum,
                    &expected,
                    (round, &comparison.interrupt),
                )?;
                sample.into_iter().for_each(|sample| output.take(&mut measured, sample));
            }
            if checksum != Checksum::None {
                output.take(&mut measured, reading.in_memory(checksum, round));
            }
        }
    }
    drop(comparison);
    output.finish(measured);
    output.write()
}

/// The expected checksum over all data.
fn expected(dataset: &Dataset, checksum: Checksum) -> String {
    let mut sum = Sum::new(checksum);
    (0..dataset.len()).for_each(|oid| sum.update(&dataset.data(Oid(oid))));
    sum.finish()
}

struct ReadAll<'a> {
    options: &'a ReadAllOptions,
    dataset: &'a Arc<Dataset>,
}

impl ReadAll<'_> {
    fn measurement(&self) -> Measurement {
        let title = format!(
            "Every object once, one after the other: {}; {} rounds, median (min-max)",
            self.dataset.description(),
            self.options.time.rounds
        );
        let mut measured = Measurement::new("ReadAll", title)
            .axis("checksum", "checksum")
            .column("us_per_object", "us/object", Shown::Spread)
            .go("ns/op", 1e3)
            .latency("p50", "p50 us", Shown::Median)
            .latency("p99", "p99", Shown::Median)
            .column("server_cpu_us", "server CPU us", Shown::Spread)
            .go("cpu-ns/op", 1e3)
            .column("client_cpu_us", "client CPU us", Shown::Median)
            .go("client-cpu-ns/op", 1e3)
            .ratio("us_per_object", "zodium", "us: zodium / it")
            .bars("us_per_object")
            .latencies();
        measured.note(
            "memory: the checksum alone; filestorage: Python's own, in process. All checksums \
             were verified.",
        );
        measured
    }

    /// Reads all objects repeatedly until the measurement is long enough.
    fn measure(
        &self,
        server: &Server,
        checksum: Checksum,
        expected: &str,
        round: usize,
    ) -> Result<Sample> {
        let mut connection = Connection::open(server.address, server.protocol, self.dataset)?;
        let mut scratch = Scratch::new();
        let mut unused = Latencies::new()?;
        let began = Instant::now();
        while began.elapsed() < self.options.time.warm_up {
            self.pass(&mut connection, &mut scratch, checksum, expected, &mut unused)?;
        }
        let mut latencies = Latencies::new()?;
        let before = Reading::take(server)?;
        let began = Instant::now();
        while began.elapsed() < self.options.time.seconds {
            self.pass(&mut connection, &mut scratch, checksum, expected, &mut latencies)?;
        }
        let used = before.until(&Reading::take(server)?);
        let count = latencies.len();
        let sample = Sample::new(&server.name, connection.wire_name(), round)
            .case("checksum", checksum.name())
            .value("requests", count as f64)
            .value("us_per_object", used.time.as_secs_f64() * 1e6 / count as f64);
        let sample = used.values(sample, count);
        Ok(sample.percentiles("", &latencies).distribution(&latencies))
    }

    fn pass(
        &self,
        connection: &mut Connection,
        scratch: &mut Scratch,
        checksum: Checksum,
        expected: &str,
        latencies: &mut Latencies,
    ) -> Result<()> {
        connection.replace_verifier(Verifier::All(Sum::new(checksum)));
        for oid in 0..self.dataset.len() {
            connection.ask(Oid(oid))?;
            connection.send()?;
            while !connection.is_idle() {
                connection.receive(scratch, |waited| latencies.record(waited))?;
            }
        }
        let sum = connection.replace_verifier(Verifier::Each).sum().unwrap_or_default();
        ensure!(
            sum == expected,
            "the {} over all objects is {sum}, but of what was stored it is {expected}",
            checksum.name()
        );
        Ok(())
    }

    fn in_python(
        &self,
        python: &Python,
        checksum: Checksum,
        expected: &str,
        (round, interrupt): (usize, &Interrupt),
    ) -> Result<Option<Sample>> {
        let (seconds, objects) = (self.options.time.seconds, self.dataset.len());
        let read = python.read(checksum, objects, seconds, interrupt)?;
        let sample = read.map(|read| {
            ensure!(read.sum == expected, "FileStorage gives other data: {}", read.sum);
            let each = |seconds: f64| seconds * 1e6 / read.objects;
            let sample = Sample::new("filestorage", "", round)
                .case("checksum", checksum.name())
                .value("us_per_object", each(read.seconds))
                .value("client_cpu_us", each(read.cpu_seconds));
            Ok(sample)
        });
        sample.transpose()
    }

    /// Measures the checksum alone.
    fn in_memory(&self, checksum: Checksum, round: usize) -> Sample {
        let objects: Vec<Vec<u8>> =
            (0..self.dataset.len()).map(|oid| self.dataset.data(Oid(oid))).collect();
        let mut count = 0;
        let began = Instant::now();
        let enough = self.options.time.seconds.min(Duration::from_millis(300));
        while began.elapsed() < enough {
            let mut sum = Sum::new(checksum);
            objects.iter().for_each(|data| sum.update(data));
            std::hint::black_box(sum.finish());
            count += objects.len();
        }
        Sample::new(MEMORY, "", round)
            .case("checksum", checksum.name())
            .value("us_per_object", began.elapsed().as_secs_f64() * 1e6 / count as f64)
    }
}
