//! `zodium-bench client`: the cost of Python clients, beside the native one.
//!
//! Key decision: a client is a program that gets a case and prints its results. The Python clients
//! share one script; the native one is this binary. They are started in turns, and what they loaded
//! is compared with what was stored.

mod job;
pub(crate) mod native;
mod programs;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use zodium_types::Oid;

use self::job::{Job, Line};
use self::programs::Program;
use crate::comparison::Comparison;
use crate::dataset::Dataset;
use crate::load::load_all;
use crate::machine::Machine;
use crate::options::{Checksum, ClientCase, ClientOptions};
use crate::result::{Measurement, Output, Sample, Shown};
use crate::server::{Data, Server, ServerCommand};
use crate::verifier::Sum;

/// Number of objects loaded in bulk, if there are as many.
const BULK_OBJECTS: u64 = 1000;
/// The first pass is not counted, so there are at least two.
const PASSES: f64 = 2.0;

/// Measures and reports.
pub(crate) fn run(options: &ClientOptions) -> Result<()> {
    let programs = programs::all(&options.python)?;
    let mut comparison = Comparison::prepare(options.servers.folder.as_deref())?;
    let mut machine = Machine::here();
    machine.warn();
    let dataset = std::sync::Arc::new(options.dataset.dataset());
    let iterates = options.cases.contains(&ClientCase::Iterate);
    ensure!(
        !iterates || dataset.is_written_in_order(),
        "an iteration is checked where each object is written once: leave out iterate with \
         --cases load,threads,bulk,commit, or choose --dataset wczblk1 or sized"
    );
    let kept = options.dataset.datasets.as_deref();
    let path = dataset.file(kept, comparison.folder(), &comparison.interrupt);
    let path = path.context("cannot write the dataset")?;
    // A copy for each server: clients commit.
    comparison.start(&options.servers, Data::Copied(&path))?;
    machine.versions.clone_from(&comparison.versions);
    machine.versions.push(programs::versions(&options.python)?);
    for server in &comparison.servers {
        load_all(server, &dataset, &comparison).with_context(|| server.last_words())?;
    }

    let bench = Bench { options, dataset: &dataset };
    let cases = bench.cases();
    let each = options.time.seconds.as_secs_f64() * PASSES * programs.len() as f64;
    comparison.announce(options.time.rounds, cases.len(), each);
    let mut measured = bench.measurement();
    let mut output = Output::begin(&options.output, machine);
    comparison.take_turns(options.time.rounds, &cases, |server, case, round| {
        let (first, rest) = programs.split_at(round % programs.len().max(1));
        for program in rest.iter().chain(first) {
            comparison.interrupt.check()?;
            for sample in bench.measure(&comparison, program, server, *case, round)? {
                output.take(&mut measured, sample);
            }
        }
        Ok(())
    })?;
    drop(comparison);
    output.finish(measured);
    output.write()
}

struct Bench<'a> {
    options: &'a ClientOptions,
    dataset: &'a Dataset,
}

/// A case, and its number of threads.
type Case = (ClientCase, u16);

impl Bench<'_> {
    fn cases(&self) -> Vec<Case> {
        let threads = |case: &ClientCase| match case {
            ClientCase::Threads => self.options.threads.clone(),
            _ => vec![1],
        };
        let cases = self.options.cases.iter();
        cases.flat_map(|case| threads(case).into_iter().map(|count| (*case, count))).collect()
    }

    fn measurement(&self) -> Measurement {
        let title = format!(
            "Clients, one of {}; commits of {} objects of {} bytes; {} rounds, median (min-max)",
            self.dataset.description(),
            self.options.commit_objects,
            self.options.commit_bytes,
            self.options.time.rounds
        );
        let mut measured = Measurement::new("Client", title)
            .compared("client")
            .axis("step", "what")
            .axis("server", "server")
            .column("us", "us", Shown::Spread)
            .go("ns/op", 1e3)
            .column("client_cpu_us", "client CPU us", Shown::Spread)
            .go("client-cpu-ns/op", 1e3)
            .column("per_second", "a second", Shown::SpreadThousands)
            .go("op/s", 1.0)
            .column("round_trips", "round trips", Shown::SpreadIfAny)
            .go("round-trips", 1.0)
            .ratio("us", "zodium", "us: zodium / it")
            .ratio("client_cpu_us", "zodium", "CPU: zodium / it")
            .bars("us");
        measured.note(
            "zodium and zeo are the ClientStorage of either Python package, native is the Rust \
             client. All loaded and committed data were verified.",
        );
        measured
    }

    /// Runs a case in a client; returns a sample for each of its steps.
    fn measure(
        &self,
        comparison: &Comparison,
        program: &Program,
        server: &Server,
        case: Case,
        round: usize,
    ) -> Result<Vec<Sample>> {
        let proxy = match case.0 {
            ClientCase::Bulk => {
                let delay = self.options.round_trip_ms;
                let this = crate::programs::own()?;
                let command = ServerCommand::delay_proxy(&this, server.address, delay);
                Some(comparison.start_aside(&command).context("cannot start the delay proxy")?)
            }
            _ => None,
        };
        let address = proxy.as_ref().map_or(server.address, |proxy| proxy.address);
        let job = self.job(program, address, case);
        let lines = program.run(&job, &comparison.interrupt).with_context(|| {
            let (client, server) = (program.name, server.label());
            format!("the client {client} failed to {:?} from {server}", case.0)
        })?;
        let mut totals: Vec<Line> = Vec::new();
        for line in lines {
            self.check(case.0, &line)?;
            match totals.iter_mut().find(|total| total.step == line.step) {
                Some(total) => total.add(&line),
                None => totals.push(line),
            }
        }
        ensure!(!totals.is_empty(), "the client {} tells nothing", program.name);
        let sample = |line: &Line| self.sample(program, server, case, line, round);
        Ok(totals.iter().map(sample).collect())
    }

    fn job(&self, program: &Program, address: std::net::SocketAddr, (case, threads): Case) -> Job {
        Job {
            client: program.name.to_owned(),
            host: address.ip().to_string(),
            port: address.port(),
            case: job::name(case).to_owned(),
            objects: match case {
                ClientCase::Bulk => self.dataset.len().min(BULK_OBJECTS),
                ClientCase::Commit => self.options.commit_objects.into(),
                _ => self.dataset.len(),
            },
            bytes: self.options.commit_bytes,
            threads,
            seconds: self.options.time.seconds.as_secs_f64(),
            warm_up: self.options.time.warm_up.as_secs_f64(),
            patience: self.options.patience,
            last_tid: self.dataset.last_tid().to_string(),
        }
    }

    /// Checks that the loaded data are the stored data.
    fn check(&self, case: ClientCase, line: &Line) -> Result<()> {
        if case == ClientCase::Commit {
            return Ok(());
        }
        let mut sum = Sum::new(Checksum::Crc32);
        (0..line.count).for_each(|oid| sum.update(&self.dataset.data(Oid(oid))));
        let (expected, got) = (sum.finish(), &line.crc32);
        ensure!(
            line.count > 0 && line.count <= self.dataset.len() && *got == expected,
            "the CRC-32 over {} objects is {got}, but of what was stored it is {expected}",
            line.count
        );
        Ok(())
    }

    fn sample(
        &self,
        program: &Program,
        server: &Server,
        (case, threads): Case,
        line: &Line,
        round: usize,
    ) -> Sample {
        let step = match case {
            ClientCase::Load => format!("load, {}", line.step),
            ClientCase::Threads => format!("load, {threads} threads"),
            ClientCase::Bulk => format!("bulk load at {} ms", millis(self.options.round_trip_ms)),
            ClientCase::Commit | ClientCase::Iterate => line.step.clone(),
        };
        let each = |seconds: f64| seconds * 1e6 / line.count as f64;
        let sample = Sample::new(program.name, server.asked.unwrap_or_default(), round)
            .case("step", step)
            .case("server", &server.name)
            .value("requests", line.count as f64)
            .value("us", each(line.seconds))
            .value("client_cpu_us", each(line.cpu_seconds))
            .value("per_second", line.count as f64 / line.seconds);
        match case {
            ClientCase::Bulk => {
                let seconds = line.seconds / line.passes as f64;
                let round_trip = self.options.round_trip_ms.as_secs_f64();
                sample.value("round_trips", seconds / round_trip)
            }
            _ => sample,
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
