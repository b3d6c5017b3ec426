//! Converts pack metrics to samples.

use super::packers::PackMetrics;
use super::writers::{Commit, Stalls};
use crate::result::{Latencies, Measurement, Sample, Shown};

/// The longest commit during a pack, of which there are ratios. The longest before it is chance.
const STALL: &str = "stall_us";

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
        .ratio(STALL, "zodium", "longest: zodium / it")
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
    let before = sample("before", stalls.before_seconds, &stalls.before)?;
    let during = sample("during", stalls.pack_seconds, &stalls.during)?;
    let longest = during.values.get("max_us").copied().unwrap_or(f64::NAN);
    Ok([before, during.value(STALL, longest)])
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn commits_before_a_pack_have_no_ratio() {
        let mut measured = stalls();
        for (name, millis) in [("zodium", 10), ("zeo", 40)] {
            let commit =
                |millis| Commit { began: Instant::now(), took: Duration::from_millis(millis) };
            let [before, during] = [vec![commit(100)], vec![commit(1), commit(millis)]];
            let stalls = Stalls { before, during, pack_seconds: 1.0, before_seconds: 1.0 };
            measured.samples.extend(stall(name, 0, &stalls).unwrap());
        }
        let ratios = measured.groups().into_iter().filter_map(|group| {
            let ratio = measured.ratio_of(&measured.ratios[0], &group)?;
            Some((group[0].case["when"].clone(), ratio.median))
        });
        let ratios: Vec<_> = ratios.collect();
        assert!(
            matches!(&ratios[..], [(when, ratio)]
            if when == "during" && (ratio - 0.25).abs() < 0.01),
            "{ratios:?}"
        );
    }
}
