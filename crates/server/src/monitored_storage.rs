//! What the monitor shows of one storage: its health and its metrics.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use zodium_blobs::BlobDirectory;
use zodium_engine::{Database, PackStatus, WriteFailure};
use zodium_filestorage::FileStorage;
use zodium_monitor::{
    Blobs, Cache, Checksums, MethodMetrics, Pack, PackEnd, PackRun, Storage, StorageHealth,
    StorageState,
};
use zodium_storage::{PackStep, WriteState};
use zodium_types::Tid;
use zodium_zeo_server::{BlobTraffic, SessionMetrics};

use crate::free_space::FreeSpace;
use crate::monitored_process::unix_seconds;

/// How long a storage counts as full after a refusal, whatever its disk has left: a transaction may
/// have been too large.
const FULL_REMEMBERED: Duration = Duration::from_secs(60);
/// With less than so many bytes left on its disk, a storage that has refused a transaction counts
/// as full until it takes one.
const FREE_BYTES_LEAST: u64 = 1 << 20;

/// A write that has been running for longer is noted: its disk is slow, or does not answer.
pub(crate) const SLOW_WRITE: Duration = Duration::from_secs(10);
/// With a write that has been running for longer a storage counts as out of order.
const STALLED_WRITE: Duration = Duration::from_secs(60);

/// Whether a storage takes commits, and what has failed. `free_bytes` are those of its disk, if
/// they are known, and `obstacle` is why the NEO cluster that keeps it is not there, if so.
pub(crate) fn health_of(
    name: &str,
    storage: &Database,
    damaged: u64,
    free_bytes: Option<u64>,
    obstacle: Option<String>,
) -> StorageHealth {
    let state = match storage.write_state() {
        _ if storage.is_closing() => StorageState::Closing,
        _ if obstacle.is_some() => StorageState::Unreachable,
        WriteState::Changed => StorageState::Changed,
        _ if storage.commit_status().failed => StorageState::Failed,
        WriteState::Failed => StorageState::Failed,
        _ if storage.write_time().is_some_and(|time| time >= STALLED_WRITE) => {
            StorageState::Stalled
        }
        WriteState::Full { ago } if !is_still_full(ago, free_bytes) => StorageState::Writable,
        WriteState::Full { .. } => StorageState::Full,
        WriteState::ReadOnly => StorageState::ReadOnly,
        WriteState::Writable => StorageState::Writable,
    };
    let failure = storage
        .write_failure()
        .filter(|_| matches!(state, StorageState::Failed | StorageState::Changed));
    let failure = failure.map(|failure| failure_of(storage, &failure));
    let failure = failure.or_else(|| obstacle.filter(|_| state == StorageState::Unreachable));
    StorageHealth { name: name.to_owned(), state, damaged, failure }
}

/// A sentence about a write that has been running for long.
pub(crate) fn slow_write_note(name: &str, storage: &Database) -> Option<String> {
    let time = storage.write_time().filter(|time| (SLOW_WRITE..STALLED_WRITE).contains(time))?;
    Some(format!(
        "a write to storage {name} has not ended for {} s: its disk does not answer, commits wait",
        time.as_secs()
    ))
}

fn is_still_full(refused_ago: Duration, free_bytes: Option<u64>) -> bool {
    refused_ago < FULL_REMEMBERED || free_bytes.is_some_and(|bytes| bytes < FREE_BYTES_LEAST)
}

/// Describes a failure, and what comes next.
fn failure_of(storage: &Database, failure: &WriteFailure) -> String {
    let next = failure.next_attempt.map(|at| storage.unix_seconds_at(at));
    let next = next.map(|at| (at - unix_seconds(SystemTime::now())).max(0.0).ceil());
    let next = match next {
        Some(seconds) => format!("the file will be reopened in {seconds} s"),
        None if storage.write_state() == WriteState::Changed => {
            "put the file back, then send SIGUSR1, or restart the server".to_owned()
        }
        None => "repair the disk, then send SIGUSR1, or restart the server".to_owned(),
    };
    format!("{}; reopening failed {} times, {next}", failure.reason, failure.attempts)
}

/// The metrics of a storage, with those of its sessions.
pub(crate) fn storage_of(
    name: &str,
    storage: &Database,
    file: Option<&FileStorage>,
    sessions: SessionMetrics,
    free_space: &FreeSpace,
) -> Storage {
    let (kept, metrics) = (storage.reader(), storage.metrics());
    let commits = metrics.commits;
    let last = storage.last_tid();
    let held_since = commits.oldest_grant.map(|at| storage.unix_seconds_at(at));
    let now = unix_seconds(SystemTime::now());
    let requests = sessions.requests.into_iter();
    Storage {
        name: name.to_owned(),
        file: kept.name(),
        size_bytes: kept.size(),
        disk_free_bytes: file.and_then(|_| free_space.bytes(Path::new(&kept.name()))),
        objects: kept.object_count(),
        last_transaction: last.to_string(),
        last_transaction_time: (last != Tid::ZERO).then(|| last.to_unix_nanos() as f64 / 1e9),
        connections: sessions.connections,
        open_transactions: sessions.active_transactions,
        waiting_for_locks: commits.waiting as u64,
        holding_locks: commits.locking as u64,
        oldest_lock_seconds: held_since.map(|since| (now - since).max(0.0)),
        finish_queue: (commits.ready + commits.writing) as u64,
        write_seconds: storage.write_time().map(|time| time.as_secs_f64()),
        commits: sessions.commits,
        aborts: sessions.aborts,
        expired: sessions.expired,
        conflicts: sessions.conflicts,
        conflicts_resolved: sessions.conflicts_resolved,
        requests: requests.map(|(method, seconds)| MethodMetrics { method, seconds }).collect(),
        cold_loads: sessions.cold_loads,
        lock_waits: sessions.lock_waits,
        batches: metrics.batches,
        appends: metrics.appends,
        syncs: metrics.syncs,
        write_failures: metrics.write_failures,
        reopenings: metrics.reopenings,
        errors: sessions.errors,
        blobs: storage.blobs().map(|directory| blobs_of(directory, sessions.blobs, free_space)),
        cache: file.map(cache_of),
        checksums: file.map(checksums_of),
        pack: pack_of(&metrics.pack),
    }
}

/// The paths whose disks are shown.
pub(crate) fn paths_of(
    storage: &Database,
    file: Option<&FileStorage>,
) -> impl Iterator<Item = PathBuf> {
    let data = file.map(|_| PathBuf::from(storage.reader().name()));
    let blobs = storage.blobs().map(|directory| directory.path().to_owned());
    data.into_iter().chain(blobs)
}

fn blobs_of(directory: &BlobDirectory, traffic: BlobTraffic, free_space: &FreeSpace) -> Blobs {
    let path = directory.path();
    Blobs {
        directory: path.display().to_string(),
        disk_free_bytes: free_space.bytes(path),
        received: traffic.received,
        received_bytes: traffic.received_bytes,
        sent: traffic.sent,
        sent_bytes: traffic.sent_bytes,
    }
}

fn cache_of(file: &FileStorage) -> Cache {
    let cache = file.reader().cache_statistics();
    Cache {
        hits: cache.hits,
        misses: cache.misses,
        evictions: cache.evictions,
        records: cache.entries as u64,
        bytes: cache.bytes as u64,
        bytes_max: cache.budget_bytes as u64,
    }
}

fn checksums_of(file: &FileStorage) -> Checksums {
    let metrics = file.checksum_metrics().unwrap_or_default();
    Checksums {
        covered_bytes: metrics.covered_bytes,
        scrubbed_bytes: metrics.scrubbed_bytes,
        damaged: file.damaged_places(),
    }
}

fn pack_of(status: &PackStatus) -> Pack {
    let running = status.running.map(|run| {
        let seconds = run.started.elapsed().as_secs_f64();
        let Some((step, done, total)) = run.progress else {
            return PackRun { seconds, step: "beginning", done: None };
        };
        let step = match step {
            PackStep::Checking => "looking for damage",
            PackStep::Marking => "finding what is in use",
            PackStep::Copying => "copying",
            PackStep::Waiting => "waiting for undos and restores",
        };
        let done = (total > 0).then(|| (done as f64 / total as f64).min(1.0));
        PackRun { seconds, step, done }
    });
    let last = status.last.as_ref().map(|last| PackEnd {
        time: unix_seconds(last.at),
        seconds: last.duration.as_secs_f64(),
        freed_bytes: last.result.as_ref().ok().copied(),
        error: last.result.as_ref().err().cloned(),
    });
    Pack { succeeded: status.succeeded, failed: status.failed, running, last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_storage_is_full_for_a_minute_and_then_while_its_disk_is() {
        let (soon, late) = (Duration::from_secs(59), Duration::from_secs(60));
        let [little, much] = [FREE_BYTES_LEAST - 1, FREE_BYTES_LEAST].map(Some);
        for (ago, free_bytes, is_full) in [
            (soon, None, true),
            (soon, much, true),
            (late, None, false),
            (late, much, false),
            (late, little, true),
        ] {
            assert_eq!(is_still_full(ago, free_bytes), is_full, "{ago:?} {free_bytes:?}");
        }
    }
}
