//! One thread of a measurement: reads and writes keys by chance until the time is over.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng};
use rustix::thread::{CpuSet, sched_setaffinity};
use zodium_keyspace::Place;

use super::kinds::{Keys, TOGETHER, Wanted};
use crate::result::Latencies;

/// Batches of operations between two looks at the clock. One operation of a batch is timed: to time
/// costs about as much as an operation.
const BATCHES: u64 = 4;

/// What all threads of a measurement do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Reads for each write.
    pub(super) reads: u32,
    pub(super) keys: u64,
    pub(super) value_size: usize,
    pub(super) duration: Duration,
    pub(super) is_pinned: bool,
}

/// What a thread has done.
pub(super) struct Done {
    pub(super) operations: u64,
    pub(super) elapsed: Duration,
    pub(super) cpu: Duration,
    pub(super) latencies: Latencies,
    pub(super) switches: u64,
    /// `None` if the kernel does not tell.
    pub(super) migrations: Option<u64>,
}

/// The name of a key.
pub(super) fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let digits = format!("{number:012}");
    key[4..].copy_from_slice(&digits.as_bytes()[..12]);
    key
}

/// Runs the thread with this number.
pub(super) fn run(keys: &dyn Keys, plan: Plan, number: usize, start: &Barrier) -> Result<Done> {
    let pinned = if plan.is_pinned { stay_on(number) } else { Ok(()) };
    let mut random = rand::rngs::SmallRng::seed_from_u64(number as u64);
    let names: Vec<[u8; 16]> = (0..plan.keys).map(key).collect();
    let value = vec![b'v'; plan.value_size];
    let mut out = Vec::with_capacity(plan.value_size);
    let mut places = [Place::default(); TOGETHER];
    let mut latencies = Latencies::new()?;
    let mut operations = 0;
    let reader = keys.reader();
    start.wait();
    pinned.context("cannot pin a thread to a processor")?;
    let (before, began) = (Counters::read()?, Instant::now());
    while began.elapsed() < plan.duration {
        let now = zodium_keyspace::now();
        for _ in 0..BATCHES {
            // Copied, as keys are that come from a client: else the kinds wait for this table.
            let names: [[u8; 16]; TOGETHER] =
                std::array::from_fn(|_| names[random.random_range(0..names.len())]);
            let names = names.each_ref().map(|name| &name[..]);
            keys.prepare(reader.as_ref(), &names, &mut places);
            for (number, (name, place)) in names.iter().zip(places).enumerate() {
                let is_write = random.random_range(0..=plan.reads) == 0;
                let timed = (number == 0).then(Instant::now);
                if is_write {
                    keys.set(name, place, now, &value);
                } else {
                    out.clear();
                    let wanted = Wanted { key: name, place, reader: reader.as_ref() };
                    ensure!(keys.get(wanted, now, &mut out), "a key is missing");
                    std::hint::black_box(&out);
                }
                if let Some(timed) = timed {
                    latencies.record(timed.elapsed());
                }
            }
        }
        operations += BATCHES * TOGETHER as u64;
    }
    let (elapsed, after) = (began.elapsed(), Counters::read()?);
    Ok(Done {
        operations,
        elapsed,
        cpu: after.cpu.saturating_sub(before.cpu),
        latencies,
        switches: after.switches.saturating_sub(before.switches),
        migrations: after
            .migrations
            .zip(before.migrations)
            .map(|(after, before)| after.saturating_sub(before)),
    })
}

/// Counters of the calling thread.
struct Counters {
    cpu: Duration,
    switches: u64,
    migrations: Option<u64>,
}

impl Counters {
    fn read() -> Result<Counters> {
        let read = |name: &str| {
            let path = format!("/proc/thread-self/{name}");
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let schedstat = read("schedstat")?;
        let nanos = schedstat.split_whitespace().next().and_then(|field| field.parse().ok());
        let number = |line: &str| line.rsplit(':').next()?.trim().parse::<u64>().ok();
        let status = read("status")?;
        let switches = status.lines().filter(|line| line.contains("voluntary_ctxt_switches"));
        // Not all kernels have this file.
        let sched = read("sched").unwrap_or_default();
        let migrations = sched.lines().find(|line| line.starts_with("se.nr_migrations"));
        Ok(Counters {
            cpu: Duration::from_nanos(nanos.context("/proc/thread-self/schedstat has no time")?),
            switches: switches.filter_map(number).sum(),
            migrations: migrations.and_then(number),
        })
    }
}

/// Pins the calling thread to a processor.
fn stay_on(number: usize) -> Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    set.set(number % processors);
    Ok(sched_setaffinity(None, &set)?)
}
