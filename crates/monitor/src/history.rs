//! What the server did since its start, in a fixed number of points.
//!
//! Key decision: when all points are in use, each two become one, and from then on a point stands
//! for twice the time. So the memory is fixed, and the history always begins at the start.

use std::time::Duration;

use serde::Serialize;
use zodium_types::Distribution;

use crate::process::Process;
use crate::snapshot::{Snapshot, Storage};

/// Time between two samples.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// Points that are kept.
const POINTS_MAX: usize = 240;

/// The series, in the order of the tiles of the status page.
const SERIES: usize = 8;
/// Of latencies the larger one counts where two points become one; of others the mean.
const LATENCIES: [usize; 2] = [1, 3];

/// The history of a server.
#[derive(Debug, Serialize)]
pub(crate) struct History {
    /// The end of each point's time, and its values; absent where there is none.
    points: Vec<Point>,
    /// Samples that a point stands for.
    #[serde(skip)]
    samples_each: u32,
    /// Samples of the point that is not complete yet.
    #[serde(skip)]
    pending: Vec<Point>,
    #[serde(skip)]
    before: Option<Totals>,
}

/// Values at a time, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Point {
    time: f64,
    values: [Option<f32>; SERIES],
}

/// What the next sample is compared with.
#[derive(Clone, Debug)]
struct Totals {
    time: f64,
    requests: u64,
    commits: u64,
    loads: Option<Distribution>,
    finishes: Option<Distribution>,
    hits: u64,
    misses: u64,
    network_bytes: u64,
    cpu_seconds: f64,
}

impl Default for History {
    fn default() -> History {
        History { points: Vec::new(), samples_each: 1, pending: Vec::new(), before: None }
    }
}

impl History {
    /// Adds a sample.
    pub(crate) fn add(&mut self, time: f64, snapshot: &Snapshot, process: &Process) {
        let now = Totals::of(time, snapshot, process);
        let Some(before) = self.before.replace(now.clone()) else { return };
        if now.time > before.time {
            let connections = snapshot.network.connections as f32;
            self.add_point(Point { time, values: now.values_since(&before, connections) });
        }
    }

    fn add_point(&mut self, point: Point) {
        self.pending.push(point);
        if (self.pending.len() as u32) < self.samples_each {
            return;
        }
        self.points.push(merged(&self.pending));
        self.pending.clear();
        if self.points.len() == POINTS_MAX {
            self.points = self.points.chunks(2).map(merged).collect();
            self.samples_each = self.samples_each.saturating_mul(2);
        }
    }
}

/// One point for the time of several.
fn merged(points: &[Point]) -> Point {
    let time = points.last().map_or(0.0, |last| last.time);
    let values = std::array::from_fn(|series| {
        let known: Vec<f32> = points.iter().filter_map(|point| point.values[series]).collect();
        let count = known.len() as f32;
        match known.as_slice() {
            [] => None,
            known if LATENCIES.contains(&series) => known.iter().copied().reduce(f32::max),
            known => Some(known.iter().sum::<f32>() / count),
        }
    });
    Point { time, values }
}

impl Totals {
    fn of(time: f64, snapshot: &Snapshot, process: &Process) -> Totals {
        let sum =
            |value: &dyn Fn(&Storage) -> u64| snapshot.storages.iter().map(value).sum::<u64>();
        let node = snapshot.node.as_ref().map(|node| node.totals).unwrap_or_default();
        let network = &snapshot.network;
        let all_requests =
            |storage: &Storage| storage.requests.iter().map(|of| of.seconds.count()).sum();
        Totals {
            time,
            requests: sum(&all_requests) + node.loads + node.stores,
            commits: sum(&|storage| storage.commits) + node.commits,
            loads: of_method(snapshot, "loadBefore"),
            finishes: of_method(snapshot, "tpc_finish"),
            hits: sum(&|storage| storage.cache.as_ref().map_or(0, |cache| cache.hits)),
            misses: sum(&|storage| storage.cache.as_ref().map_or(0, |cache| cache.misses)),
            network_bytes: network.bytes_sent + network.bytes_received,
            cpu_seconds: process.cpu_seconds,
        }
    }

    /// The values between two samples.
    fn values_since(&self, before: &Totals, connections: f32) -> [Option<f32>; SERIES] {
        let seconds = self.time - before.time;
        let rate = |now: u64, old: u64| Some((now.saturating_sub(old) as f64 / seconds) as f32);
        let hits = self.hits.saturating_sub(before.hits);
        let reads = hits + self.misses.saturating_sub(before.misses);
        [
            rate(self.requests, before.requests),
            p99(self.loads.as_ref(), before.loads.as_ref()),
            rate(self.commits, before.commits),
            p99(self.finishes.as_ref(), before.finishes.as_ref()),
            (reads > 0).then(|| hits as f32 / reads as f32),
            Some(connections),
            rate(self.network_bytes, before.network_bytes),
            Some(((self.cpu_seconds - before.cpu_seconds) / seconds) as f32),
        ]
    }
}

/// Durations of the requests of a method to all storages.
fn of_method(snapshot: &Snapshot, method: &str) -> Option<Distribution> {
    let requests = snapshot.storages.iter().flat_map(|storage| &storage.requests);
    let mut found = requests.filter(|request| request.method == method);
    let mut all = found.next()?.seconds.clone();
    found.for_each(|request| all.add(&request.seconds));
    Some(all)
}

/// The upper bound of the bucket with the 99th percentile of the values since `before`.
fn p99(now: Option<&Distribution>, before: Option<&Distribution>) -> Option<f32> {
    let now = now?;
    let old = |at: usize| before.map_or(0, |before| before.buckets[at]);
    let since: Vec<u64> =
        now.buckets.iter().enumerate().map(|(at, count)| count.saturating_sub(old(at))).collect();
    let total: u64 = since.iter().sum();
    let mut left = (total as f64 * 0.99).ceil() as u64;
    for (at, count) in since.iter().enumerate() {
        if *count > 0 && left <= *count {
            return Some((now.first_bound * (1_u64 << at) as f64) as f32);
        }
        left = left.saturating_sub(*count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(time: f64, rate: f32) -> Point {
        let values = std::array::from_fn(|series| (series != 4).then_some(rate));
        Point { time, values }
    }

    #[test]
    fn any_time_since_the_start_fits_into_the_same_memory() {
        let mut history = History::default();
        for second in 0..20_000 {
            history.add_point(point(f64::from(second), (second % 10) as f32));
            assert!(history.points.len() < POINTS_MAX);
        }
        let first = history.points[0];
        assert!(first.time < 1000.0, "{first:?}");
        let rate = first.values[0].unwrap();
        assert!((4.0..5.0).contains(&rate), "{rate}");
        assert_eq!((first.values[1], first.values[4]), (Some(9.0), None));
        assert!(history.points.is_sorted_by(|one, two| one.time < two.time));
        assert!(history.points.len() >= POINTS_MAX / 2);
    }

    #[test]
    fn values_are_those_between_two_samples() {
        let process = |cpu_seconds| Process {
            cpu_seconds,
            resident_bytes: None,
            open_files: None,
            open_files_max: None,
        };
        let mut history = History::default();
        let mut snapshot = Snapshot::default();
        snapshot.network.bytes_sent = 1000;
        snapshot.network.connections = 4;
        history.add(100.0, &snapshot, &process(1.0));
        assert!(history.points.is_empty());
        snapshot.network.bytes_sent = 6000;
        history.add(105.0, &snapshot, &process(3.5));
        let Point { time, values } = history.points[0];
        assert_eq!(
            (time, values[5], values[6], values[7]),
            (105.0, Some(4.0), Some(1000.0), Some(0.5))
        );
        assert_eq!((values[1], values[4]), (None, None));
    }
}
