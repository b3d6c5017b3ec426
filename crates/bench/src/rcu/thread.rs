//! One thread of a measurement: reads and writes keys by chance until the time is over.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zodium_keyspace::{Place, Reader};

use super::kinds::{Keys, TOGETHER, Wanted};
use crate::processors;
use crate::result::Latencies;

/// Batches of operations between two looks at the time that is left. A batch is timed as a whole:
/// to time costs about as much as an operation, and some kinds do a part of it for all keys
/// together.
const BATCHES: u64 = 4;

/// A thread works for this part of its time before anything counts.
const WARM_UP_SHARE: u32 = 10;

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
    let pinned = if plan.is_pinned { pin(number) } else { Ok(()) };
    let mut work = Work {
        keys,
        reader: keys.reader(),
        random: SmallRng::seed_from_u64(number as u64),
        names: (0..plan.keys).map(key).collect(),
        reads: plan.reads,
        value: vec![b'v'; plan.value_size],
        out: Vec::with_capacity(plan.value_size),
        latencies: Latencies::new()?,
    };
    start.wait();
    let warmed_up = pinned.and_then(|()| work.run_for(plan.duration / WARM_UP_SHARE));
    work.latencies = Latencies::new()?;
    // All count at the same time, and none waits for one that has failed.
    start.wait();
    warmed_up?;
    let (before, began) = (Counters::read()?, Instant::now());
    let operations = work.run_for(plan.duration)?;
    let (elapsed, after) = (began.elapsed(), Counters::read()?);
    Ok(Done {
        operations,
        elapsed,
        cpu: after.cpu.saturating_sub(before.cpu),
        latencies: work.latencies,
        switches: after.switches.saturating_sub(before.switches),
        migrations: after
            .migrations
            .zip(before.migrations)
            .map(|(after, before)| after.saturating_sub(before)),
    })
}

/// What a thread works with.
struct Work<'a> {
    keys: &'a dyn Keys,
    reader: Option<Reader>,
    random: SmallRng,
    names: Vec<[u8; 16]>,
    /// Reads for each write.
    reads: u32,
    value: Vec<u8>,
    out: Vec<u8>,
    /// Of one operation, as its share of a batch.
    latencies: Latencies,
}

impl Work<'_> {
    /// Returns the number of operations.
    fn run_for(&mut self, duration: Duration) -> Result<u64> {
        let (mut operations, began) = (0, Instant::now());
        while began.elapsed() < duration {
            let now = zodium_keyspace::now();
            for _ in 0..BATCHES {
                self.run_batch(now)?;
            }
            operations += BATCHES * TOGETHER as u64;
        }
        Ok(operations)
    }

    fn run_batch(&mut self, now: u64) -> Result<()> {
        // Copied, as keys are that come from a client: else the kinds wait for this table.
        let names: [[u8; 16]; TOGETHER] =
            std::array::from_fn(|_| self.names[self.random.random_range(0..self.names.len())]);
        let names = names.each_ref().map(|name| &name[..]);
        let mut places = [Place::default(); TOGETHER];
        let began = Instant::now();
        self.keys.prepare(self.reader.as_ref(), &names, &mut places);
        for (name, place) in names.iter().zip(places) {
            if self.random.random_range(0..=self.reads) == 0 {
                self.keys.set(name, place, now, &self.value);
            } else {
                self.out.clear();
                let wanted = Wanted { key: name, place, reader: self.reader.as_ref() };
                ensure!(self.keys.get(wanted, now, &mut self.out), "a key is missing");
                std::hint::black_box(&self.out);
            }
        }
        self.latencies.record(began.elapsed() / TOGETHER as u32);
        Ok(())
    }
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

/// Pins the calling thread, the one with this number.
fn pin(number: usize) -> Result<()> {
    let allowed = processors::allowed()?;
    processors::stay_on(None, allowed[number % allowed.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes its time before any key is read.
    struct Ahead;

    const AHEAD: Duration = Duration::from_millis(4);

    impl Keys for Ahead {
        fn prepare(&self, _: Option<&Reader>, _: &[&[u8]], _: &mut [Place; TOGETHER]) {
            std::thread::sleep(AHEAD);
        }

        fn get(&self, _: Wanted<'_>, _: u64, _: &mut Vec<u8>) -> bool {
            true
        }

        fn set(&self, _: &[u8], _: Place, _: u64, _: &[u8]) {}
    }

    #[test]
    fn latencies_include_what_is_done_for_all_keys_of_a_batch() {
        let duration = Duration::from_millis(20);
        let plan = Plan { reads: 1, keys: 3, value_size: 1, duration, is_pinned: false };
        let done = run(&Ahead, plan, 0, &Barrier::new(1)).unwrap();
        let share = AHEAD / TOGETHER as u32;
        assert!(done.latencies.quantile_us(0.5) >= share.as_secs_f64() * 1e6 * 0.99);
        assert_eq!(done.latencies.len() * TOGETHER as u64, done.operations);
    }
}
