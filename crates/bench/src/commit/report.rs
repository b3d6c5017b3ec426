//! Converts commit metrics to samples.

use std::time::Duration;

use super::Measured;
use super::client::OPERATIONS;
use crate::options::{CommitOptions, Mode};
use crate::result::{Latencies, Measurement, Sample, Shown};
use crate::server::Server;

/// Round trips of a transaction. (Requests for new oids are rare and not counted.)
const ROUND_TRIPS: f64 = 2.0;

/// A case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) mode: Mode,
    /// The added round trip time.
    pub(super) delay: Duration,
    pub(super) clients: usize,
}

impl Case {
    /// The rate if nothing took time but two round trips, for vote and finish. `None` if the rate
    /// is bounded by something else, or by chance.
    fn allowed(&self, round_trip: Duration) -> Option<f64> {
        let is_far = !self.delay.is_zero() && !self.mode.is_shared();
        is_far.then(|| self.clients as f64 / (ROUND_TRIPS * round_trip.as_secs_f64()))
    }
}

fn axes(measured: Measurement) -> Measurement {
    measured
        .axis("mode", "mode")
        .axis("files", "files")
        .axis("round_trip_ms", "round trip ms")
        .axis("clients", "clients")
}

fn sample(server: &Server, case: &Case, round: usize, wire: &str) -> Sample {
    Sample::new(&server.name, wire, round)
        .case("mode", case.mode.name())
        .case("files", server.place)
        .case("round_trip_ms", case.delay.as_secs_f64() * 1e3)
        .case("clients", case.clients)
}

/// The table of whole commits.
pub(super) fn commits(options: &CommitOptions) -> Measurement {
    let title = format!(
        "Commits of {} objects of {} bytes; {} rounds of {} s, median (min-max)",
        options.objects,
        options.object_bytes,
        options.time.rounds,
        options.time.seconds.as_secs_f64()
    );
    let mut measured = axes(Measurement::new("Commit", title))
        .column("transactions_per_second", "transactions/s", Shown::SpreadThousands)
        .go("tx/s", 1.0)
        .column("of_one_client", "x 1 client", Shown::SpreadIfAny)
        .go("x-one-client", 1.0)
        .column("of_allowed_percent", "% of allowed", Shown::SpreadIfAny)
        .go("%-of-allowed", 1.0)
        .column("server_cpu_us", "server CPU us", Shown::Spread)
        .go("cpu-ns/op", 1e3)
        .latency("p50", "p50 us", Shown::Median)
        .latency("p99", "p99", Shown::Median)
        .latency("max", "max", Shown::Median)
        .column("a_sync", "a sync", Shown::Median)
        .go("tx/sync", 1.0)
        .column("syncs_per_second", "syncs/s", Shown::Count)
        .go("syncs/s", 1.0)
        .column("client_cpu_us", "client CPU us", Shown::Median)
        .go("client-cpu-ns/op", 1e3)
        .column("measured_round_trip_us", "round trip us", Shown::Median)
        .column("fairness", "most / fewest", Shown::SpreadIfAny)
        .go("fairness", 1.0)
        .column("fewest_commits", "fewest", Shown::SpreadIfAny)
        .go("fewest-tx", 1.0)
        .column("ns_per_transaction", "ns/transaction", Shown::Never)
        .go("ns/op", 1.0);
    if options.modes.iter().any(|mode| mode.is_shared()) {
        measured = measured
            .column("conflicts", "conflicts a commit", Shown::Median)
            .go("conflicts/op", 1.0);
        measured.note(
            "In the conflict modes a transaction writes one of eight objects that all clients \
             write. After a conflict, `conflict` writes the same one again, `conflict-any` any.",
        );
    }
    measured.note("All acknowledged data were read back and verified.");
    measured
        .ratio("transactions_per_second", "zodium", "tx/s: zodium / it")
        .curve("clients", "transactions_per_second")
        .curve("clients", "server_cpu_us")
        .latencies()
}

/// The table of the steps of commits.
pub(super) fn steps() -> Measurement {
    let title = "Steps of those commits, microseconds".to_owned();
    axes(Measurement::new("CommitStep", title))
        .axis("step", "step")
        .latency("min", "min", Shown::Median)
        .column("mean_us", "mean", Shown::Spread)
        .go("ns/op", 1e3)
        .latency("p50", "median", Shown::Spread)
        .latency("p99", "p99", Shown::Median)
        .latency("max", "max", Shown::Median)
        .ratio("p50_us", "zodium", "median: zodium / it")
}

pub(super) fn commit(server: &Server, case: &Case, round: usize, measured: &Measured) -> Sample {
    let Measured { used, metrics, .. } = measured;
    let commits = measured.commits as f64;
    let seconds = used.time.as_secs_f64();
    let rate = commits / seconds;
    let mut sample = sample(server, case, round, measured.wire)
        .value("transactions", commits)
        .value("transactions_per_second", rate)
        .value("ns_per_transaction", 1e9 * seconds / commits)
        .value("measured_round_trip_us", measured.round_trip.as_secs_f64() * 1e6);
    if let Some(batches) = &measured.batches {
        sample = sample
            .value("a_sync", batches.transactions / batches.syncs)
            .value("syncs_per_second", batches.syncs / seconds);
    }
    if let Some(rate_of_one) = measured.rate_of_one {
        sample = sample.value("of_one_client", rate / rate_of_one);
    }
    if let Some(allowed) = case.allowed(measured.round_trip) {
        sample = sample.value("of_allowed_percent", 100.0 * rate / allowed);
    }
    sample = fairness(sample, metrics.iter().map(|metrics| metrics.commits));
    if case.mode.is_shared() {
        let conflicts: u64 = metrics.iter().map(|metrics| metrics.conflicts).sum();
        sample = sample.value("conflicts", conflicts as f64 / commits);
    }
    sample = used.values(sample, measured.commits);
    match all(measured).into_iter().next_back() {
        Some(whole) => sample.percentiles("", &whole).distribution(&whole),
        None => sample,
    }
}

/// Adds how evenly the commits of several clients are spread.
fn fairness(sample: Sample, commits: impl ExactSizeIterator<Item = u64> + Clone) -> Sample {
    if commits.len() < 2 {
        return sample;
    }
    let [most, fewest] = [commits.clone().max(), commits.min()].map(Option::unwrap_or_default);
    // A client without a commit counts as if it had one: such a round must not be left out.
    sample
        .value("fairness", most as f64 / fewest.max(1) as f64)
        .value("fewest_commits", fewest as f64)
}

pub(super) fn operations(
    server: &Server,
    case: &Case,
    round: usize,
    measured: &Measured,
) -> Vec<Sample> {
    let named = OPERATIONS.into_iter().zip(all(measured));
    named
        .map(|(name, latencies)| {
            let sample = sample(server, case, round, measured.wire).case("step", name);
            sample.value("samples", latencies.len() as f64).percentiles("", &latencies)
        })
        .collect()
}

/// The latencies of each step, over all clients.
fn all(measured: &Measured) -> Vec<Latencies> {
    let mut clients = measured.metrics.iter();
    let mut all = clients.next().map_or_else(Vec::new, |first| first.operations.to_vec());
    for metrics in clients {
        for (sum, latencies) in all.iter_mut().zip(&metrics.operations) {
            sum.add(latencies);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(commits: &[u64]) -> [Option<f64>; 2] {
        let sample = fairness(Sample::new("zodium", "M5", 0), commits.iter().copied());
        ["fairness", "fewest_commits"].map(|key| sample.values.get(key).copied())
    }

    #[test]
    fn a_client_without_commits_shows() {
        assert_eq!(values(&[9, 6, 3]), [Some(3.0), Some(3.0)]);
        assert_eq!(values(&[9, 0, 3]), [Some(9.0), Some(0.0)]);
        assert_eq!(values(&[0, 0]), [Some(0.0), Some(0.0)]);
        assert_eq!(values(&[9]), [None, None]);
    }
}
