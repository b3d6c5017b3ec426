//! `zodium-bench rcu`: kinds of keyspace, by how readers are kept apart from writers.
//!
//! Key decision: it runs within this process, as none of the kinds but one is a server. The kinds
//! take turns within each round, which begins with another kind each time. Each row has the mean
//! over all rounds with its confidence.

mod kinds;
mod thread;

use std::sync::Barrier;

use anyhow::{Context, Result};
use zodium_keyspace::Place;

use self::kinds::{Kind, TOGETHER};
use self::thread::{Done, Plan, key};
use crate::machine::Machine;
use crate::options::RcuOptions;
use crate::result::{Latencies, Measurement, Output, Sample, Shown};

/// What a case varies.
#[derive(Clone, Copy, Debug)]
struct Case {
    reads: u32,
    threads: u16,
    is_pinned: bool,
}

/// One kind in one case: what its rounds have come to.
struct Row {
    nanos: Vec<f64>,
    rates: Vec<f64>,
    latencies: Latencies,
    seconds: f64,
    switches: u64,
    migrations: Option<u64>,
}

/// Measures and reports.
pub(crate) fn run(options: &RcuOptions) -> Result<()> {
    let machine = Machine::here();
    machine.warn();
    let threads = options.threads.iter().max().copied().unwrap_or(1);
    let kinds = kinds::chosen(&options.kinds, threads.into());
    let value = vec![b'v'; options.value_size];
    let now = zodium_keyspace::now();
    for keys in kinds.iter().flat_map(Kind::all_keys) {
        let mut places = [Place::default(); TOGETHER];
        for number in 0..options.keys {
            let key = key(number);
            keys.prepare(None, &[&key], &mut places);
            keys.set(&key, places[0], now, &value);
        }
    }
    let cases = cases(options);
    let mut rows: Vec<Row> =
        (0..cases.len() * kinds.len()).map(|_| Row::new()).collect::<Result<_>>()?;
    for round in 0..usize::from(options.rounds) {
        for (case, rows) in cases.iter().zip(rows.chunks_mut(kinds.len())) {
            for index in turns(round, kinds.len()) {
                rows[index].add(measure(&kinds[index], options, *case)?);
            }
        }
    }
    let mut output = Output::begin(&options.output, machine);
    let mut measured = measurement(options);
    let mut rows = rows.iter();
    for case in &cases {
        for (kind, row) in kinds.iter().zip(&mut rows) {
            output.take(&mut measured, row.sample(kind.name, *case));
        }
    }
    output.finish(measured);
    output.write()
}

/// The places of all kinds, beginning with another one each round.
fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |place| (place + round) % count)
}

fn cases(options: &RcuOptions) -> Vec<Case> {
    let mut cases = Vec::new();
    for reads in options.reads.iter().copied() {
        for threads in options.threads.iter().copied() {
            let pinned = options.pinned.iter().copied();
            cases.extend(pinned.map(|is_pinned| Case { reads, threads, is_pinned }));
        }
    }
    cases
}

/// Has the threads of a case read and write for its time.
fn measure(kind: &Kind, options: &RcuOptions, case: Case) -> Result<Vec<Done>> {
    let plan = Plan {
        reads: case.reads,
        keys: options.keys,
        value_size: options.value_size,
        duration: options.seconds,
        is_pinned: case.is_pinned,
    };
    let start = Barrier::new(case.threads.into());
    std::thread::scope(|scope| {
        let numbers = 0..usize::from(case.threads);
        let start = &start;
        let threads: Vec<_> = numbers
            .map(|number| {
                scope.spawn(move || thread::run(kind.keys_of(number), plan, number, start))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().ok().context("a thread has panicked")?)
            .collect()
    })
}

impl Row {
    fn new() -> Result<Row> {
        Ok(Row {
            nanos: Vec::new(),
            rates: Vec::new(),
            latencies: Latencies::new()?,
            seconds: 0.0,
            switches: 0,
            migrations: Some(0),
        })
    }

    fn add(&mut self, round: Vec<Done>) {
        let (mut cpu, mut operations, mut rate) = (0.0, 0.0, 0.0);
        for done in round {
            cpu += done.cpu.as_nanos() as f64;
            operations += done.operations as f64;
            rate += done.operations as f64 / done.elapsed.as_secs_f64();
            self.latencies.add(&done.latencies);
            self.seconds += done.elapsed.as_secs_f64();
            self.switches += done.switches;
            self.migrations = self.migrations.zip(done.migrations).map(|(all, one)| all + one);
        }
        self.nanos.push(cpu / operations);
        self.rates.push(rate / 1e6);
    }

    fn sample(&self, name: &str, case: Case) -> Sample {
        let nanos = Mean::of(&self.nanos);
        let migrations = self.migrations.map_or(f64::NAN, |count| count as f64 / self.seconds);
        let nanos_at = |quantile| self.latencies.quantile_us(quantile) * 1e3;
        Sample::new(name, "", 0)
            .case("reads", format!("{}:1", case.reads))
            .case("threads", case.threads)
            .case("pinned", if case.is_pinned { "yes" } else { "no" })
            .value("cpu_ns", nanos.mean)
            .value("deviation_ns", nanos.deviation)
            .value("confidence_ns", nanos.confidence)
            .value("rate", Mean::of(&self.rates).mean)
            .value("p50_ns", nanos_at(0.5))
            .value("p99_ns", nanos_at(0.99))
            .value("p99_9_ns", nanos_at(0.999))
            .value("switches", self.switches as f64 / self.seconds)
            .value("migrations", migrations)
    }
}

fn measurement(options: &RcuOptions) -> Measurement {
    let title = format!(
        "Kinds of keyspace: {} keys, values of {} bytes; {} rounds of {} s",
        options.keys,
        options.value_size,
        options.rounds,
        options.seconds.as_secs_f64()
    );
    let mut measured = Measurement::new("Rcu", title)
        .compared("kind")
        .axis("reads", "reads:writes")
        .axis("threads", "threads")
        .axis("pinned", "pinned")
        .column("cpu_ns", "CPU ns", Shown::Median)
        .go("ns/op", 1.0)
        .column("deviation_ns", "deviation", Shown::Median)
        .column("confidence_ns", "95 % +-", Shown::Median)
        .column("rate", "million/s", Shown::Median)
        .go("Mop/s", 1.0)
        .column("p50_ns", "p50 ns", Shown::Median)
        .column("p99_ns", "p99 ns", Shown::Median)
        .column("p99_9_ns", "p99.9 ns", Shown::Median)
        .column("switches", "switches/s", Shown::Median)
        .column("migrations", "migrations/s", Shown::Median);
    measured.note(
        "CPU ns: processor time of an operation, with the choice of a key; mean over the rounds, \
         with their standard deviation and half the width of the 95 % confidence interval of the \
         mean (Student's t). p50 to p99.9: of batches of 16 operations, each timed as a whole with \
         what is done for all of its keys together, and divided by 16. Switches and migrations: of \
         each thread.",
    );
    measured.note(
        "mutex: one lock around a map. shards: 64 locks that readers share. epochs: a skip list \
         with epochs (crossbeam-skiplist). hyaline: a map with reference counts per batch \
         (papaya). zodium: the keyspace of our RESP server, as GET and SET use it; by 16: the keys \
         of 16 requests are looked up together, as those of a pipeline are; own: each thread has a \
         keyspace of its own, so that nothing but the machine limits it. There is no QSBR, as no \
         kept crate has it.",
    );
    measured
}

/// The mean of samples, and how sure it is.
struct Mean {
    mean: f64,
    /// Standard deviation of the samples.
    deviation: f64,
    /// Half the width of the 95 % confidence interval of the mean.
    confidence: f64,
}

impl Mean {
    fn of(samples: &[f64]) -> Mean {
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0)).sqrt();
        let confidence = student(samples.len().saturating_sub(1)) * deviation / count.sqrt();
        Mean { mean, deviation, confidence }
    }
}

/// The 97.5 % quantile of Student's t distribution.
fn student(degrees: usize) -> f64 {
    const FEW: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match degrees.checked_sub(1).and_then(|place| FEW.get(place)) {
        Some(quantile) => *quantile,
        // Beyond that it is within one percent.
        None => 1.96 + 2.5 / degrees.max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_kind() {
        let orders: Vec<Vec<usize>> = (0..4).map(|round| turns(round, 3).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    }

    #[test]
    fn a_mean_has_its_deviation_and_confidence() {
        let Mean { mean, deviation, confidence } = Mean::of(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-9 && (deviation - 1.0).abs() < 1e-9);
        assert!((confidence - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9);
        for (degrees, expected) in [(20, 2.086), (60, 2.000), (1000, 1.962)] {
            assert!((student(degrees) / expected - 1.0).abs() < 0.01, "{degrees}");
        }
    }
}
