//! `zodium-bench syscalls`: the cost of system calls, warm and cold.

use anyhow::{Context, Result};

use super::calls::{Fixture, calls};
use super::sampled;
use crate::comparison::Comparison;
use crate::machine::Machine;
use crate::options::SyscallOptions;
use crate::result::{Latencies, Measurement, Output, Sample, Shown};

/// More than fits the processor's caches.
const FLOOD_BYTES: usize = 32 << 20;
const LINE_BYTES: usize = 64;
/// Slow calls are made so many times less often.
const SLOW: u32 = 10;

/// Measures and reports.
pub(crate) fn run(options: &SyscallOptions) -> Result<()> {
    let comparison = Comparison::prepare(options.probe.folder.as_deref())?;
    let machine = Machine::here();
    machine.warn();
    let mut fixture = Fixture::new(&comparison.folder().join("file"))
        .context("cannot set up the sockets and files")?;
    let mut output = Output::begin(&options.probe.output, machine);
    let mut measured = measurement();
    let mut flood = vec![0_u8; FLOOD_BYTES];
    for call in calls() {
        comparison.interrupt.check()?;
        let count = |count: u32| if call.is_slow { (count / SLOW).max(1) } else { count };
        let warm = sampled(count(options.samples), &mut fixture, call.prepare, call.make)?;
        let prepare = |fixture: &mut Fixture| {
            (call.prepare)(fixture)?;
            flood.iter_mut().step_by(LINE_BYTES).for_each(|byte| *byte = byte.wrapping_add(1));
            std::hint::black_box(&flood);
            Ok(())
        };
        let cold = sampled(count(options.cold_samples), &mut fixture, prepare, call.make)?;
        output.take(&mut measured, sample(call.name, "warm", &warm));
        output.take(&mut measured, sample(call.name, "cold", &cold));
    }
    drop(comparison);
    output.finish(measured);
    output.write()
}

fn measurement() -> Measurement {
    let title = "System calls, nanoseconds".to_owned();
    let mut measured = Measurement::new("Syscall", title)
        .axis("call", "call")
        .axis("caches", "caches")
        .column("best_ns", "best", Shown::Median)
        .go("best-ns", 1.0)
        .column("mean_ns", "mean", Shown::Median)
        .go("ns/op", 1.0)
        .column("median_ns", "median", Shown::Median)
        .go("p50-ns", 1.0)
        .column("max_ns", "max", Shown::Median)
        .go("max-ns", 1.0);
    measured.note(
        "All rows include the cost of the clock. Cold: after writing to 32 MiB before each call. \
         Over TCP the sender pays for the receiver's half.",
    );
    measured
}

fn sample(call: &str, caches: &str, latencies: &Latencies) -> Sample {
    Sample::new("", "", 0)
        .case("call", call)
        .case("caches", caches)
        .value("samples", latencies.len() as f64)
        .value("best_ns", latencies.min_us() * 1e3)
        .value("mean_ns", latencies.mean_us() * 1e3)
        .value("median_ns", latencies.quantile_us(0.5) * 1e3)
        .value("max_ns", latencies.max_us() * 1e3)
        .distribution(latencies)
}
