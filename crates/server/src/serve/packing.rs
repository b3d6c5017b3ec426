//! Runs the packs that the configuration schedules.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Zoned};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};
use zodium_configuration::{Configuration, PackSchedule};
use zodium_engine::Database;
use zodium_storage::StorageError;
use zodium_types::Tid;

use super::storages::Storages;
use super::timetable::{Timetable, Turn};

/// Interval between two looks at the clock, which may be set, or stop while the machine sleeps.
const LOOK_INTERVAL: Duration = Duration::from_secs(20);

/// The tasks that wait for the times of all schedules.
pub(crate) struct Packing {
    waiting: Vec<JoinHandle<()>>,
}

impl Packing {
    /// Starts the tasks. Must be called within the runtime.
    pub(crate) fn start(configuration: &Configuration, storages: &Storages) -> Packing {
        let mut waiting = Vec::new();
        for opened in storages.iter() {
            let options = configuration.storages.iter().find(|o| o.name == opened.name);
            if let Some(schedule) = options.and_then(|options| options.pack.schedule.clone()) {
                let (name, storage) = (opened.name.clone(), Arc::clone(&opened.storage));
                waiting.push(tokio::spawn(pack_in_time(name, storage, schedule)));
            }
        }
        Packing { waiting }
    }

    /// Starts no further packs. A running one must be cancelled separately.
    pub(crate) async fn stop(self) {
        for task in self.waiting {
            task.abort();
            // The task has ended, and released its storage.
            let _ = task.await;
        }
    }
}

async fn pack_in_time(name: String, storage: Arc<Database>, schedule: PackSchedule) {
    let mut timetable = Timetable::new(&schedule, &Zoned::now());
    loop {
        if let Some(next) = timetable.next() {
            info!(storage = name, at = %next, keep_days = schedule.keep_days, "next pack");
        }
        let is_due = loop {
            match timetable.turn(&Zoned::now()) {
                Turn::Wait(left) => {
                    let left = Duration::try_from(left).unwrap_or_default();
                    tokio::time::sleep(left.min(LOOK_INTERVAL)).await;
                }
                Turn::Due => break true,
                Turn::Missed(time) => {
                    warn!(storage = name, at = %time, "the time to pack was missed");
                    break false;
                }
                Turn::Never => return,
            }
        };
        // Before the pack, which may last until the next time; that one is missed then.
        timetable.skip_to(&Zoned::now());
        if is_due {
            let (name, storage) = (name.clone(), Arc::clone(&storage));
            let pack_tid = tid_days_ago(Timestamp::now(), schedule.keep_days);
            let packed = tokio::task::spawn_blocking(move || pack(&name, &storage, pack_tid));
            // An error means that its thread panicked, which ends the process.
            let _ = packed.await;
        }
    }
}

fn pack(name: &str, storage: &Database, pack_tid: Tid) {
    match storage.pack(pack_tid) {
        // The engine has logged the result.
        Ok(_) => {}
        Err(StorageError::AlreadyPacking(_)) => {
            warn!(storage = name, "not packed at the time set: another pack is under way");
        }
        Err(StorageError::PackCancelled(_)) => {
            info!(storage = name, "the pack was cancelled");
        }
        Err(error) => error!(storage = name, %error, "not packed"),
    }
}

/// The tid of the time `days` of 24 hours before `now`.
fn tid_days_ago(now: Timestamp, days: f64) -> Tid {
    let back = SignedDuration::try_from_secs_f64(days * 86_400.0).unwrap_or(SignedDuration::MAX);
    let then = now.saturating_sub(back).unwrap_or(Timestamp::UNIX_EPOCH);
    Tid::from_unix_nanos(u64::try_from(then.as_nanosecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_back_from_now() {
        let now: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
        let unix_seconds = |days| tid_days_ago(now, days).to_unix_seconds().round();
        assert_eq!(unix_seconds(0.0), now.as_second() as f64);
        assert_eq!(unix_seconds(1.5), (now.as_second() - 129_600) as f64);
        assert_eq!(unix_seconds(1e9), 0.0);
    }
}
