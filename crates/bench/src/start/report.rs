//! Converts start metrics to samples.

use crate::memory::Memory;
use crate::result::{Measurement, Sample, Shown};

/// The table of starts with an index.
pub(super) fn indexed(dataset: &str, rounds: u16) -> Measurement {
    let title = format!("Starts with an index: {dataset}; {rounds} rounds, median (min-max)");
    let mut measured =
        times("Start", title).ratio("seconds", "zodium", "seconds: zodium / it").bars("seconds");
    measured.note(
        "From the start of the process to the reply to its first load. all: also the index's \
         checksum file and record checksums, as Zodium leaves them; index: only the index, as \
         ZODB leaves it.",
    );
    measured
}

/// The table of starts without an index.
pub(super) fn scanned(dataset: &str, file_bytes: u64, rounds: u16) -> Measurement {
    let megabytes = file_bytes / 1_000_000;
    let title = format!(
        "Starts without an index: {dataset}, a file of {megabytes} MB; {rounds} rounds, median \
         (min-max)"
    );
    let mut measured = times("StartScan", title)
        .column("megabytes_per_second", "MB/s", Shown::Spread)
        .go("MB/s", 1.0)
        .column("megabytes_per_cpu_second", "MB/CPU second", Shown::Spread)
        .go("MB/cpu-s", 1.0)
        .ratio("seconds", "zodium", "seconds: zodium / it")
        .bars("megabytes_per_second");
    measured.note(
        "The whole file is read. checksums: the checksum file exists, and every transaction and \
         record is compared with its checksum. CPU seconds are those of all threads together.",
    );
    measured
}

fn times(benchmark: &str, title: String) -> Measurement {
    Measurement::new(benchmark, title)
        .axis("source", "files in")
        .axis("beside", "beside the file")
        .column("seconds", "seconds", Shown::Spread)
        .go("sec/op", 1.0)
        .column("cpu_seconds", "CPU seconds", Shown::Spread)
        .go("cpu-sec/op", 1.0)
}

/// Adds how fast the file was read, per second and per second of processor time.
pub(super) fn rates(sample: Sample, file_bytes: u64) -> Sample {
    let rate = |key: &str| sample.values.get(key).map(|seconds| file_bytes as f64 / 1e6 / seconds);
    let (all, cpu) = (rate("seconds"), rate("cpu_seconds"));
    sample
        .value("megabytes_per_second", all.unwrap_or(f64::NAN))
        .value("megabytes_per_cpu_second", cpu.unwrap_or(f64::NAN))
}

/// The table of servers' memory.
pub(super) fn memory(dataset: &str) -> Measurement {
    let mut measured = Measurement::new("Memory", format!("Memory of servers: {dataset}; once"))
        .column("index_bytes", "index bytes/object", Shown::Median)
        .go("index-B/object", 1.0)
        .column("first_resident_mb", "MB after the first reply", Shown::Median)
        .go("first-MB", 1.0)
        .column("first_anonymous_mb", "of that anonymous", Shown::Median)
        .column("first_peak_mb", "most until then", Shown::Median)
        .column("loaded_resident_mb", "MB after all was loaded", Shown::Median)
        .go("loaded-MB", 1.0)
        .column("loaded_anonymous_mb", "of that anonymous", Shown::Median)
        .ratio("loaded_resident_mb", "zodium", "MB at last: zodium / it")
        .bars("loaded_resident_mb");
    measured.note(
        "Resident memory. Its anonymous part is what the process has allocated and used; the rest \
         is mostly its program. Index bytes per object: the anonymous part after the first \
         reply, minus that of a server with one object.",
    );
    measured
}

/// Memory of one server.
pub(super) struct StartMetrics {
    pub(super) objects: u64,
    /// After the first reply, with a file of one object.
    pub(super) empty: Memory,
    /// After the first reply.
    pub(super) first: Memory,
    /// After every object was loaded.
    pub(super) loaded: Memory,
}

impl StartMetrics {
    pub(super) fn sample(&self, server: &str, wire: &str) -> Sample {
        let StartMetrics { objects, empty, first, loaded } = self;
        let index_bytes = first.anonymous.saturating_sub(empty.anonymous);
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        Sample::new(server, wire, 0)
            .value("index_bytes", index_bytes as f64 / *objects as f64)
            .value("first_resident_mb", megabytes(first.resident))
            .value("first_anonymous_mb", megabytes(first.anonymous))
            .value("first_peak_mb", megabytes(first.peak))
            .value("loaded_resident_mb", megabytes(loaded.resident))
            .value("loaded_anonymous_mb", megabytes(loaded.anonymous))
    }
}
