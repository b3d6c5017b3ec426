//! Converts pack metrics to samples.

use super::packers::PackMetrics;
use super::writers::{Commit, Stalls};
use crate::result::{Latencies, Measurement, Sample, Shown};

/// The table of packs.
pub(super) fn packs(title: String) -> Measurement {
    Measurement::new("Pack", title)
        .column("seconds", "seconds", Shown::Spread)
        .go("sec/op", 1.0)
        .column("megabytes_per_second", "MB/s", Shown::Median)
        .go("MB/s", 1.0)
        .column("peak_megabytes", "peak memory MB", Shown::Median)
        .go("peak-MB", 1.0)
        .column("packed_megabytes", "packed file MB", Shown::Median)
        .ratio("seconds", "zodium", "seconds: zodium / it")
        .bars("seconds")
}

pub(super) fn pack(name: &str, round: usize, file_bytes: u64, metrics: &PackMetrics) -> Sample {
    Sample::new(name, "", round)
        .value("seconds", metrics.seconds)
        .value("megabytes_per_second", file_bytes as f64 / 1e6 / metrics.seconds)
        .value("peak_megabytes", metrics.peak_bytes as f64 / 1e6)
        .value("packed_megabytes", metrics.file_bytes as f64 / 1e6)
}

/// The table of commits during a pack.
pub(super) fn stalls() -> Measurement {
    Measurement::new("CommitDuringPack", "Commits before a pack and during it".to_owned())
        .axis("when", "when")
        .column("commits_per_second", "commits/s", Shown::Spread)
        .go("commits/s", 1.0)
        .latency("p50", "p50 us", Shown::Spread)
        .latency("p99", "p99 us", Shown::Spread)
        .latency("max", "longest us", Shown::Spread)
        .ratio("max_us", "zodium", "longest: zodium / it")
        .latencies()
}

/// The samples of one pack during commits.
pub(super) fn stall(name: &str, round: usize, stalls: &Stalls) -> anyhow::Result<[Sample; 2]> {
    let sample = |when, seconds: f64, commits: &[Commit]| {
        let mut latencies = Latencies::new()?;
        commits.iter().for_each(|commit| latencies.record(commit.took));
        let sample = Sample::new(name, "M5", round).case("when", when);
        let sample = sample.value("commits_per_second", commits.len() as f64 / seconds);
        anyhow::Ok(sample.percentiles("", &latencies).distribution(&latencies))
    };
    Ok([
        sample("before", stalls.before_seconds, &stalls.before)?,
        sample("during", stalls.pack_seconds, &stalls.during)?,
    ])
}
