//! One measurement of one server in one case of one round.

use std::collections::BTreeMap;
use std::fmt::Display;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency; every timeout is shorter.
const LATENCY_NANOS_MAX: u64 = 3600 * 1_000_000_000;
/// Significant digits of a latency.
const LATENCY_DIGITS: u8 = 3;
/// Steps of a saved distribution per power of two.
const STEPS_PER_OCTAVE: f64 = 16.0;

/// Values, and what they are values of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) server: String,
    /// `M5`, `Z5`, `raw`, or empty if there is no protocol.
    pub(crate) wire: String,
    pub(crate) round: usize,
    /// By key of the axis.
    pub(crate) case: BTreeMap<String, String>,
    /// By key of the column.
    pub(crate) values: BTreeMap<String, f64>,
    /// A histogram: upper bounds of latencies in nanoseconds, each with the number of latencies up
    /// to it and above the previous bound. Empty if none were recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) latencies_ns: Vec<(u64, u64)>,
}

/// Latencies while they are recorded.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Sample {
    pub(crate) fn new(server: &str, wire: &str, round: usize) -> Sample {
        Sample {
            server: server.to_owned(),
            wire: wire.to_owned(),
            round,
            case: BTreeMap::new(),
            values: BTreeMap::new(),
            latencies_ns: Vec::new(),
        }
    }

    pub(crate) fn case(mut self, axis: &str, value: impl Display) -> Sample {
        self.case.insert(axis.to_owned(), value.to_string());
        self
    }

    pub(crate) fn value(mut self, column: &str, value: f64) -> Sample {
        if value.is_finite() {
            self.values.insert(column.to_owned(), value);
        }
        self
    }

    /// Adds the percentiles of a distribution in microseconds, under keys that begin with `prefix`.
    pub(crate) fn percentiles(self, prefix: &str, latencies: &Latencies) -> Sample {
        if latencies.is_empty() {
            return self;
        }
        self.value(&format!("{prefix}min_us"), latencies.min_us())
            .value(&format!("{prefix}mean_us"), latencies.mean_us())
            .value(&format!("{prefix}p50_us"), latencies.quantile_us(0.5))
            .value(&format!("{prefix}p90_us"), latencies.quantile_us(0.9))
            .value(&format!("{prefix}p99_us"), latencies.quantile_us(0.99))
            .value(&format!("{prefix}p99_9_us"), latencies.quantile_us(0.999))
            .value(&format!("{prefix}max_us"), latencies.max_us())
    }

    /// Adds the whole distribution.
    pub(crate) fn distribution(mut self, latencies: &Latencies) -> Sample {
        self.latencies_ns = latencies.steps();
        self
    }

    /// The server and its encoding, for people.
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.server, self.wire).trim_end().to_owned()
    }

    /// What identifies a sample apart from its round.
    pub(crate) fn identity(&self) -> (&str, &str, &BTreeMap<String, String>) {
        (&self.server, &self.wire, &self.case)
    }
}

impl Latencies {
    pub(crate) fn new() -> anyhow::Result<Latencies> {
        Ok(Latencies(Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, LATENCY_DIGITS)?))
    }

    pub(crate) fn record(&mut self, latency: std::time::Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn add(&mut self, other: &Latencies) {
        // All histograms have the same bounds; only different bounds could fail.
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of latencies recorded.
    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    pub(crate) fn mean_us(&self) -> f64 {
        self.0.mean() / 1e3
    }

    pub(crate) fn min_us(&self) -> f64 {
        self.0.min() as f64 / 1e3
    }

    pub(crate) fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    fn steps(&self) -> Vec<(u64, u64)> {
        let mut steps: Vec<(u64, u64)> = Vec::new();
        let mut octave = f64::NAN;
        for value in self.0.iter_recorded() {
            let nanos = value.value_iterated_to();
            let step = ((nanos.max(1) as f64).log2() * STEPS_PER_OCTAVE).floor();
            match steps.last_mut() {
                Some(last) if step == octave => {
                    *last = (nanos, last.1 + value.count_since_last_iteration());
                }
                _ => steps.push((nanos, value.count_since_last_iteration())),
            }
            octave = step;
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_distribution_keeps_every_latency_and_its_ends() {
        let mut latencies = Latencies::new().unwrap();
        for micros in 1..=10_000 {
            latencies.record(Duration::from_micros(micros));
        }
        let steps = latencies.steps();
        assert_eq!(steps.iter().map(|(_, count)| count).sum::<u64>(), 10_000);
        assert!(steps.len() < 300 && steps.is_sorted(), "{}", steps.len());
        assert!((9_990_000..10_020_000).contains(&steps.last().unwrap().0));
        let sample = Sample::new("zodium", "M5", 0).percentiles("", &latencies);
        for (key, expected) in [("p50_us", 5000.0), ("p99_9_us", 9990.0), ("max_us", 10_000.0)] {
            let value = sample.values[key];
            assert!((value / expected - 1.0).abs() < 0.002, "{key} {value}");
        }
    }
}
