//! Runs the packs that the configuration schedules.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Zoned};
use tokio::sync::Semaphore;
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

/// How long a pack waits for those of other storages.
const TURN_WAIT_MAX: Duration = Duration::from_secs(3600);

/// The tasks that wait for the times of all schedules.
pub(crate) struct Packing {
    waiting: Vec<JoinHandle<()>>,
}

impl Packing {
    /// Starts the tasks. Must be called within the runtime.
    pub(crate) fn start(configuration: &Configuration, storages: &Storages) -> Packing {
        let mut waiting = Vec::new();
        // One after the other, each has the space on the disk and its time for itself.
        let turn = Arc::new(Semaphore::new(1));
        for opened in storages.iter() {
            let options = configuration.storages.iter().find(|o| o.name == opened.name);
            if let Some(schedule) = options.and_then(|options| options.pack.schedule.clone()) {
                let (name, storage) = (opened.name.clone(), Arc::clone(&opened.storage));
                let turn = Arc::clone(&turn);
                waiting.push(tokio::spawn(pack_in_time(name, storage, schedule, turn)));
            }
        }
        Packing { waiting }
    }

    /// Starts no further packs. A running one must be cancelled separately.
    pub(crate) async fn stop(self) {
        // All of them first: the end of one would let another one begin that waits for its turn.
        self.waiting.iter().for_each(JoinHandle::abort);
        for task in self.waiting {
            // The task has ended, and released its storage.
            let _ = task.await;
        }
    }
}

async fn pack_in_time(
    name: String,
    storage: Arc<Database>,
    schedule: PackSchedule,
    turn: Arc<Semaphore>,
) {
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
            in_turn(&name.clone(), &turn, move || {
                let pack_tid = tid_days_ago(Timestamp::now(), schedule.keep_days);
                pack(&name, &storage, pack_tid);
            })
            .await;
        }
    }
}

/// Runs a pack on a thread, behind those of other storages.
async fn in_turn(name: &str, turn: &Semaphore, pack: impl FnOnce() + Send + 'static) {
    if turn.available_permits() == 0 {
        info!(storage = name, "the pack waits for that of another storage");
    }
    // A storage whose disk hangs must not keep all others from being packed.
    let _turn = tokio::time::timeout(TURN_WAIT_MAX, turn.acquire()).await;
    // An error means that its thread panicked, which ends the process.
    let _ = tokio::task::spawn_blocking(pack).await;
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
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn packs_of_several_storages_run_one_after_the_other() {
        let (turn, running, done) =
            (Semaphore::new(1), Arc::new(AtomicU32::new(0)), Arc::default());
        let pack = |done: &Arc<AtomicU32>| {
            let (running, done) = (Arc::clone(&running), Arc::clone(done));
            move || {
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
                std::thread::sleep(Duration::from_millis(50));
                running.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
            }
        };
        tokio::join!(
            in_turn("one", &turn, pack(&done)),
            in_turn("two", &turn, pack(&done)),
            in_turn("three", &turn, pack(&done)),
        );
        assert_eq!(done.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn days_are_counted_back_from_now() {
        let now: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
        let unix_seconds = |days| tid_days_ago(now, days).to_unix_seconds().round();
        assert_eq!(unix_seconds(0.0), now.as_second() as f64);
        assert_eq!(unix_seconds(1.5), (now.as_second() - 129_600) as f64);
        assert_eq!(unix_seconds(1e9), 0.0);
    }
}
