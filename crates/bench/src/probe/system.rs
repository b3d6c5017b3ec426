//! `zodium-bench system`: finds what would disturb a benchmark on this machine.

use anyhow::{Context, Result};

use super::disk::Disk;
use super::settings::{Ticks, advice};
use super::wake_up::{self, Placement};
use crate::comparison::Comparison;
use crate::machine::Machine;
use crate::options::SystemOptions;
use crate::result::{Latencies, Measurement, Output, Sample, Shown};

/// Syncs and direct reads are made so many times less often.
const SLOW: u32 = 10;
/// From this wake-up latency on, wake-ups dominate the measurements.
const WAKE_UP_US: f64 = 20.0;
/// A faster sync does not reach a disk.
const SYNC_US: f64 = 20.0;

/// Measures and reports.
pub(crate) fn run(options: &SystemOptions) -> Result<()> {
    let comparison = Comparison::prepare(options.probe.folder.as_deref())?;
    let machine = Machine::here();
    machine.warn();
    let before = Ticks::now();
    let mut output = Output::begin(&options.probe.output, machine);
    let mut measured = measurement();
    advice().into_iter().for_each(|line| measured.note(line));
    let mut take = |what: &str, latencies: &Latencies| {
        output.take(&mut measured, sample(what, latencies));
    };
    let mut medians = Vec::new();
    for placement in Placement::ALL {
        comparison.interrupt.check()?;
        if let Some(latencies) = wake_up::measure(placement, options.samples)? {
            medians.push(latencies.quantile_us(0.5));
            take(placement.name(), &latencies);
        }
    }
    let mut disk = Disk::new(&comparison.folder().join("file")).context("cannot make a file")?;
    take("read 4 KiB, cached", &disk.read_cached(options.samples)?);
    comparison.interrupt.check()?;
    if let Some(latencies) = disk.read_direct(options.samples / SLOW)? {
        take("read 4 KiB, direct", &latencies);
    }
    comparison.interrupt.check()?;
    let synced = disk.sync(options.samples / SLOW)?;
    take("fdatasync after a write of 4 KiB", &synced);
    measured.note(wake_up_advice(&medians));
    measured.note(sync_advice(&synced));
    measured.note(Ticks::now().advice(before));
    drop(comparison);
    output.finish(measured);
    output.write()
}

fn measurement() -> Measurement {
    Measurement::new("System", "What the machine takes, microseconds".to_owned())
        .axis("what", "what")
        .latency("min", "min", Shown::Median)
        .latency("p50", "median", Shown::Median)
        .latency("p99", "p99", Shown::Median)
        .latency("max", "max", Shown::Median)
        .latencies()
}

fn sample(what: &str, latencies: &Latencies) -> Sample {
    Sample::new("", "", 0)
        .case("what", what)
        .value("samples", latencies.len() as f64)
        .percentiles("", latencies)
        .distribution(latencies)
}

fn wake_up_advice(medians: &[f64]) -> String {
    let [same, other, polling] = medians else {
        return "Waking a sleeping core takes two; this process may use one.".to_owned();
    };
    let wake_up = (other - polling) / 2.0;
    if wake_up < WAKE_UP_US {
        return format!("Waking a sleeping core takes about {wake_up:.0} us; fine.");
    }
    format!(
        "Waking a sleeping core takes about {wake_up:.0} us, while a round trip on one core takes \
         {same:.0}: with one request in flight, wake-ups dominate. Compare servers by their \
         processor time, or boot with idle=poll."
    )
}

fn sync_advice(latencies: &Latencies) -> String {
    let (median, rare) = (latencies.quantile_us(0.5), latencies.quantile_us(0.99));
    if median < SYNC_US {
        return format!("A sync takes {median:.0} us: no disk is that fast; commits look cheap.");
    }
    format!(
        "A sync takes {median:.0} us, one in a hundred {rare:.0}: a server that syncs each commit \
         separately makes at most {:.0} per second.",
        1e6 / median
    )
}
