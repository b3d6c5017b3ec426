//! Exposition of metrics, in the OpenMetrics format or in Prometheus' text format.
//!
//! Every metric family is listed even while it has no samples, so any server shows which metrics
//! there are.

mod node;
mod resp;

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue};
use prometheus_client::encoding::{NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use zodium_types::Distribution;

use crate::health::Health;
use crate::negotiation::Format;
use crate::process::Process;
use crate::snapshot::{Blobs, Cache, Checksums, Snapshot, Storage};

/// Collects the metrics of one snapshot.
#[derive(Debug)]
pub(crate) struct MetricsCollector {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) health: Health,
    pub(crate) process: Process,
    /// Number of log messages by level.
    pub(crate) messages: [(&'static str, u64); 2],
}

/// Encodes the metrics in this format.
pub(crate) fn exposition(collector: MetricsCollector, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));
    let mut exposed = String::new();
    // Writing to a string does not fail.
    let _ = text::encode(&mut exposed, &registry);
    match format {
        Format::OpenMetrics => exposed,
        Format::Text => text_format(&exposed),
    }
}

/// Converts OpenMetrics text to Prometheus' text format, version 0.0.4.
///
/// Samples are the same in both. Only in OpenMetrics, families of counters are named without
/// `_total`, and there are units and an end mark.
fn text_format(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        let words = line.strip_prefix("# ").map(|comment| comment.split_once(' '));
        match words {
            // The name depends on the type, which follows.
            Some(Some(("HELP", rest))) => help = rest.split_once(' ').map_or("", |(_, help)| help),
            Some(Some(("TYPE", rest))) => {
                let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
                let suffix = if kind == "counter" { "_total" } else { "" };
                text.push_str(&format!(
                    "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"
                ));
            }
            Some(_) => {}
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

impl Collector for MetricsCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families { encoder, storages: &self.snapshot.storages };
        self.encode_server(&mut families)?;
        self.encode_process(&mut families)?;
        encode_contents(&mut families)?;
        encode_requests(&mut families)?;
        encode_transactions(&mut families)?;
        encode_locks(&mut families)?;
        encode_writing(&mut families)?;
        encode_blobs(&mut families)?;
        encode_cache(&mut families)?;
        encode_checksums(&mut families)?;
        encode_packs(&mut families)?;
        node::encode(&mut families, self.snapshot.node.as_ref())?;
        resp::encode(&mut families, self.snapshot.resp.as_ref())?;
        self.encode_health(&mut families)
    }
}

impl MetricsCollector {
    fn encode_server(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let server = &self.snapshot.server;
        let build = [("version", server.version)];
        families.gauge(
            "zodium_build_info",
            "Always 1; its label has the version of the server",
            None,
            [(&build, 1_u64)],
        )?;
        let uptime = seconds_since(server.started);
        families.one_gauge(
            "zodium_uptime",
            "Time since the server was started",
            SECONDS,
            uptime,
        )?;
        families.one_gauge(
            "zodium_workers",
            "Threads that serve connections",
            None,
            server.workers as u64,
        )?;
        families.one_gauge(
            "zodium_workers_silent",
            "Workers that did not answer the monitor within half a second",
            None,
            server.workers_silent as u64,
        )?;
        families.gauge(
            "zodium_tls_certificate_not_after",
            "When the certificate of the server expires, since the Unix epoch",
            SECONDS,
            server.certificate_not_after.map(|seconds| (&NO_LABELS, seconds)),
        )?;
        self.encode_network(families)?;
        self.encode_limits(families)?;
        let messages = self.messages.map(|(level, count)| ([("level", level)], count));
        let messages = messages.iter().map(|(labels, count)| (labels, *count));
        families.counter("zodium_log_messages", "Warnings and errors logged", None, messages)
    }

    fn encode_network(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let network = &self.snapshot.network;
        families.one_gauge(
            "zodium_network_connections",
            "Connections that are open, registered or not",
            None,
            network.connections,
        )?;
        let counters = [
            ("zodium_network_accepted", "Connections accepted", None, network.accepted),
            ("zodium_network_moved", "Moves between workers", None, network.moved),
            ("zodium_network_received", "Bytes received", BYTES, network.bytes_received),
            ("zodium_network_sent", "Bytes sent", BYTES, network.bytes_sent),
        ];
        for (name, help, unit, value) in counters {
            families.counter(name, help, unit, [(&NO_LABELS, value)])?;
        }
        let refused = network.refused.iter();
        let refused = refused.map(|(reason, count)| ([("reason", *reason)], *count));
        let refused: Vec<_> = refused.collect();
        families.counter(
            "zodium_network_refused",
            "Connections that the server refused or ended because of the client",
            None,
            refused.iter().map(|(labels, count)| (labels, *count)),
        )?;
        let unsent = network.unsent_bytes;
        families.one_gauge("zodium_network_unsent", "Bytes that wait to be sent", BYTES, unsent)
    }

    fn encode_limits(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let network = &self.snapshot.network;
        families.gauge(
            "zodium_network_connections_limit",
            "Most connections that are accepted at once",
            None,
            network.connections_max.map(|limit| (&NO_LABELS, limit)),
        )?;
        families.counter(
            "zodium_network_turned_away",
            "Connections closed at once because there were too many",
            None,
            [(&NO_LABELS, network.turned_away)],
        )?;
        families.gauge(
            "zodium_memory_held",
            "Memory that clients make the server hold: messages, stores, answers",
            BYTES,
            network.held_bytes.map(|bytes| (&NO_LABELS, bytes)),
        )?;
        let limit = network.held_bytes_max.map(|limit| (&NO_LABELS, limit));
        families.gauge("zodium_memory_limit", "Limit of zodium_memory_held_bytes", BYTES, limit)
    }

    /// Metrics of the process, under the names that are standard for all programs.
    fn encode_process(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let process = &self.process;
        let cpu = [(&NO_LABELS, process.cpu_seconds)];
        families.counter("process_cpu", "Time on a processor", SECONDS, cpu)?;
        let started = self.snapshot.server.started;
        families.one_gauge(
            "process_start_time",
            "Start time, since the Unix epoch",
            SECONDS,
            started,
        )?;
        let gauges = [
            ("process_resident_memory", "Memory in use", BYTES, process.resident_bytes),
            ("process_open_fds", "Open files and sockets", None, process.open_files),
            ("process_max_fds", "Limit of process_open_fds", None, process.open_files_max),
        ];
        for (name, help, unit, value) in gauges {
            families.gauge(name, help, unit, value.map(|value| (&NO_LABELS, value)))?;
        }
        Ok(())
    }

    fn encode_health(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let labels: Vec<_> =
            self.health.storages.iter().map(|s| [("storage", &s.name[..])]).collect();
        let states = self.health.storages.iter().map(|s| u64::from(s.state.complaint().is_none()));
        families.gauge(
            "zodium_storage_healthy",
            "1 while the storage accepts commits (a read-only one: reads), else 0",
            None,
            labels.iter().zip(states),
        )
    }
}

fn encode_contents(families: &mut Families<'_, '_>) -> fmt::Result {
    families.each("zodium_file_size", "Size of the data file", BYTES, |s| s.size_bytes)?;
    families.some("zodium_disk_free", "Space left on the disk of the data file", BYTES, |s| {
        s.disk_free_bytes.map(|bytes| bytes as f64)
    })?;
    families.each("zodium_objects", "Objects in the index", None, |s| s.objects)?;
    families.some(
        "zodium_last_transaction_time",
        "Time of the last transaction, since the Unix epoch",
        SECONDS,
        |s| s.last_transaction_time,
    )?;
    families.some("zodium_last_transaction_age", "Time since the last transaction", SECONDS, |s| {
        s.last_transaction_time.map(seconds_since)
    })
}

fn encode_requests(families: &mut Families<'_, '_>) -> fmt::Result {
    families.each("zodium_connections", "Clients that use the storage", None, |s| s.connections)?;
    let requests = families.storages.iter().flat_map(|storage| {
        let requests = storage.requests.iter();
        requests.map(|r| ([("storage", &storage.name[..]), ("method", r.method)], &r.seconds))
    });
    let requests: Vec<_> = requests.collect();
    families.histogram(
        "zodium_request_duration",
        "Time from the arrival of a request to its answer",
        SECONDS,
        requests.iter().map(|(labels, seconds)| (labels, *seconds)),
    )?;
    families.each_histogram(
        "zodium_cold_load_duration",
        "Time from the arrival of a load to its answer, for loads that waited for the disk",
        SECONDS,
        |s| &s.cold_loads,
    )?;
    let errors = families.storages.iter().flat_map(|storage| {
        let errors = storage.errors.iter();
        errors.map(|(error, count)| ([("storage", &storage.name[..]), ("error", *error)], *count))
    });
    let errors: Vec<_> = errors.collect();
    families.counter(
        "zodium_errors",
        "Errors that clients got as answers, by exception",
        None,
        errors.iter().map(|(labels, count)| (labels, *count)),
    )
}

fn encode_transactions(families: &mut Families<'_, '_>) -> fmt::Result {
    families.each("zodium_open_transactions", "Transactions begun and not ended", None, |s| {
        s.open_transactions
    })?;
    families.count("zodium_commits", "Transactions committed", |s| s.commits)?;
    families.count("zodium_aborts", "Transactions that clients aborted", |s| s.aborts)?;
    families.count(
        "zodium_expired_transactions",
        "Transactions that held their locks for longer than the transaction timeout",
        |s| s.expired,
    )?;
    families.count(
        "zodium_conflicts",
        "Objects whose revision was not the one that a transaction replaced",
        |s| s.conflicts,
    )?;
    families.count("zodium_conflicts_resolved", "Conflicts that the server resolved", |s| {
        s.conflicts_resolved
    })
}

fn encode_locks(families: &mut Families<'_, '_>) -> fmt::Result {
    families.each(
        "zodium_lock_waiting_transactions",
        "Transactions that wait for locks",
        None,
        |s| s.waiting_for_locks,
    )?;
    families.each(
        "zodium_lock_holding_transactions",
        "Transactions that hold locks",
        None,
        |s| s.holding_locks,
    )?;
    families.some(
        "zodium_oldest_lock_age",
        "Time for which the oldest locks have been held",
        SECONDS,
        |s| Some(s.oldest_lock_seconds.unwrap_or(0.0)),
    )?;
    families.each_histogram(
        "zodium_lock_wait_duration",
        "Time that votes waited for locks, without those that did not wait",
        SECONDS,
        |s| &s.lock_waits,
    )
}

fn encode_writing(families: &mut Families<'_, '_>) -> fmt::Result {
    families.each(
        "zodium_finish_queue_transactions",
        "Transactions that are being written, or wait to be written",
        None,
        |s| s.finish_queue,
    )?;
    families.some(
        "zodium_write_age",
        "Time for which the current write to the disk has been running",
        SECONDS,
        |s| Some(s.write_seconds.unwrap_or(0.0)),
    )?;
    families.each_histogram(
        "zodium_commit_batch_transactions",
        "Transactions in a batch, which share one sync",
        None,
        |s| &s.batches,
    )?;
    families.each_histogram(
        "zodium_append_duration",
        "Time to write and sync a batch",
        SECONDS,
        |s| &s.appends,
    )?;
    families
        .each_histogram("zodium_sync_duration", "Time to sync a batch", SECONDS, |s| &s.syncs)?;
    families.count(
        "zodium_write_failures",
        "Failed writes and syncs, which stop commits",
        |s| s.write_failures,
    )?;
    families
        .count("zodium_reopenings", "Reopenings of the file after a failed write", |s| s.reopenings)
}

fn encode_blobs(families: &mut Families<'_, '_>) -> fmt::Result {
    families.some("zodium_blob_disk_free", "Space left on the disk of the blobs", BYTES, |s| {
        s.blobs.as_ref()?.disk_free_bytes.map(|bytes| bytes as f64)
    })?;
    let count =
        |value: fn(&Blobs) -> u64| move |storage: &Storage| storage.blobs.as_ref().map_or(0, value);
    families.count(
        "zodium_blobs_received",
        "Blobs received from clients",
        count(|b| b.received),
    )?;
    families.count(
        "zodium_blob_received_bytes",
        "Bytes of the blobs received from clients",
        count(|b| b.received_bytes),
    )?;
    families.count("zodium_blobs_sent", "Blobs sent to clients", count(|b| b.sent))?;
    families.count(
        "zodium_blob_sent_bytes",
        "Bytes of blobs sent to clients",
        count(|b| b.sent_bytes),
    )
}

fn encode_cache(families: &mut Families<'_, '_>) -> fmt::Result {
    let of = |value: fn(&Cache) -> u64| move |s: &Storage| s.cache.as_ref().map(value);
    families.count_some("zodium_cache_hits", "Records found in memory", of(|c| c.hits))?;
    families.count_some("zodium_cache_misses", "Records not found in memory", of(|c| c.misses))?;
    families.count_some(
        "zodium_cache_evictions",
        "Records evicted from memory",
        of(|c| c.evictions),
    )?;
    families.some("zodium_cache_records", "Records in memory", None, of(|c| c.records))?;
    families.some("zodium_cache_size", "Memory of the cached records", BYTES, of(|c| c.bytes))?;
    families.some(
        "zodium_cache_limit",
        "Limit of zodium_cache_size_bytes",
        BYTES,
        of(|c| c.bytes_max),
    )
}

fn encode_checksums(families: &mut Families<'_, '_>) -> fmt::Result {
    let of = |value: fn(&Checksums) -> u64| move |s: &Storage| s.checksums.as_ref().map(value);
    families.some(
        "zodium_checksum_covered",
        "Bytes of the data file that have checksums",
        BYTES,
        of(|sums| sums.covered_bytes),
    )?;
    families.count_some(
        "zodium_checksum_scrubbed_bytes",
        "Bytes read only to verify checksums",
        of(|sums| sums.scrubbed_bytes),
    )?;
    let damaged = of(|sums| sums.damaged);
    families.some("zodium_checksum_damaged", "Damaged places of the data file", None, damaged)
}

fn encode_packs(families: &mut Families<'_, '_>) -> fmt::Result {
    families.each("zodium_pack_running", "1 while a pack is under way", None, |s| {
        u64::from(s.pack.running.is_some())
    })?;
    let packs = families.storages.iter().flat_map(|storage| {
        let name = &storage.name[..];
        [("success", storage.pack.succeeded), ("failure", storage.pack.failed)]
            .map(|(result, count)| ([("storage", name), ("result", result)], count))
    });
    let packs: Vec<_> = packs.collect();
    families.counter(
        "zodium_packs",
        "Packs that have ended",
        None,
        packs.iter().map(|(labels, count)| (labels, *count)),
    )?;
    families.some("zodium_last_pack_time", "Time when the last pack ended", SECONDS, |s| {
        s.pack.last.as_ref().map(|last| last.time)
    })?;
    families.some("zodium_last_pack_duration", "Duration of the last pack", SECONDS, |s| {
        s.pack.last.as_ref().map(|last| last.seconds)
    })?;
    families.some("zodium_last_pack_failed", "1 when the last pack failed, else 0", None, |s| {
        s.pack.last.as_ref().map(|last| f64::from(last.error.is_some()))
    })
}

const SECONDS: Option<&Unit> = Some(&Unit::Seconds);
const BYTES: Option<&Unit> = Some(&Unit::Bytes);

type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

const NO_LABELS: Labels<'static, 0> = [];

/// Writes families of metrics, most of which have one sample for each storage.
struct Families<'a, 'b> {
    encoder: DescriptorEncoder<'a>,
    storages: &'b [Storage],
}

impl<'b> Families<'_, 'b> {
    fn gauge<'l, const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        samples: impl IntoIterator<Item = (&'l Labels<'l, N>, V)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (labels, value) in samples {
            match N {
                0 => family.encode_gauge(&value)?,
                _ => family.encode_family(labels)?.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    fn counter<'l, const N: usize, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        samples: impl IntoIterator<Item = (&'l Labels<'l, N>, V)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (labels, value) in samples {
            match N {
                0 => family.encode_counter::<NoLabelSet, _, u64>(&value, None)?,
                _ => family
                    .encode_family(labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&value, None)?,
            }
        }
        Ok(())
    }

    fn histogram<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        samples: impl IntoIterator<Item = (&'l Labels<'l, N>, &'l Distribution)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        for (labels, distribution) in samples {
            let buckets: Vec<_> = distribution.bounded().collect();
            let (sum, count) = (distribution.sum, distribution.count());
            let mut labelled = family.encode_family(labels)?;
            labelled.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn one_gauge<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: V,
    ) -> fmt::Result {
        self.gauge(name, help, unit, [(&NO_LABELS, value)])
    }

    fn each(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl Fn(&Storage) -> u64,
    ) -> fmt::Result {
        let labels = self.labels();
        self.gauge(name, help, unit, labels.iter().zip(self.storages.iter().map(value)))
    }

    /// Writes a gauge, without a sample for a storage that has no such value.
    fn some<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl Fn(&Storage) -> Option<V>,
    ) -> fmt::Result {
        let labels = self.labels();
        let samples = labels.iter().zip(self.storages);
        let samples = samples.filter_map(|(labels, storage)| Some((labels, value(storage)?)));
        self.gauge(name, help, unit, samples)
    }

    fn count(&mut self, name: &str, help: &str, value: impl Fn(&Storage) -> u64) -> fmt::Result {
        self.count_some(name, help, |storage| Some(value(storage)))
    }

    /// Writes a counter, without a sample for a storage that has no such value.
    fn count_some(
        &mut self,
        name: &str,
        help: &str,
        value: impl Fn(&Storage) -> Option<u64>,
    ) -> fmt::Result {
        let labels = self.labels();
        let samples = labels.iter().zip(self.storages);
        let samples = samples.filter_map(|(labels, storage)| Some((labels, value(storage)?)));
        self.counter(name, help, None, samples)
    }

    fn each_histogram(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl Fn(&Storage) -> &Distribution,
    ) -> fmt::Result {
        let labels = self.labels();
        self.histogram(name, help, unit, labels.iter().zip(self.storages.iter().map(value)))
    }

    fn labels(&self) -> Vec<Labels<'b, 1>> {
        self.storages.iter().map(|storage| [("storage", &storage.name[..])]).collect()
    }
}

/// Seconds since a time; 0 if it lies ahead, as after the clock went back.
fn seconds_since(unix_seconds: f64) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs_f64() - unix_seconds).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_age_is_negative() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert_eq!(seconds_since(now + 3600.0), 0.0);
        assert!((100.0..200.0).contains(&seconds_since(now - 100.0)));
    }
}
