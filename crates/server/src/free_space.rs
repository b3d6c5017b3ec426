//! The space left on the disks of storages, for the monitor.
//!
//! Key decision: each path is asked for by a thread of its own, at most one at a time. A disk that
//! hangs keeps its thread, but neither the monitor nor the figures of other disks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use zodium_disk::{Disk, RealDisk};

/// How long the monitor waits for disks. A disk that takes longer has no figure.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks a disk.
type Ask = fn(&Path) -> Option<u64>;

/// The space left at each path, as it was last told.
pub(crate) struct FreeSpace {
    ask: Ask,
    places: Arc<Mutex<BTreeMap<PathBuf, Place>>>,
}

#[derive(Default)]
struct Place {
    /// When a thread began to ask, while it does.
    asked: Option<Instant>,
    bytes: Option<u64>,
}

impl FreeSpace {
    /// Of the real disks.
    pub(crate) fn new() -> FreeSpace {
        FreeSpace::by(|path| RealDisk.free_bytes(path))
    }

    fn by(ask: Ask) -> FreeSpace {
        FreeSpace { ask, places: Arc::default() }
    }

    /// Asks the disks of these paths. They are not waited for if they have not answered before.
    pub(crate) async fn look(&self, paths: impl IntoIterator<Item = PathBuf>) {
        let answers: Vec<_> = paths.into_iter().filter_map(|path| self.start(path)).collect();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        for answer in answers {
            let _ = timeout_at(deadline, answer).await;
        }
    }

    /// The bytes left; `None` if the disk does not answer.
    pub(crate) fn bytes(&self, path: &Path) -> Option<u64> {
        let places = self.places.lock();
        let place = places.get(path)?;
        // Another look may have begun to ask just now.
        place.bytes.filter(|_| place.asked.is_none_or(|asked| asked.elapsed() < PATIENCE))
    }

    /// The bytes left when the disk was asked last; it is asked again, and not waited for.
    pub(crate) fn last_bytes(&self, path: &Path) -> Option<u64> {
        drop(self.start(path.to_owned()));
        self.bytes(path)
    }

    /// Starts a thread, which tells when it has the answer; `None` if the path is being asked for.
    fn start(&self, path: PathBuf) -> Option<oneshot::Receiver<()>> {
        let mut places = self.places.lock();
        let place = places.entry(path.clone()).or_default();
        if place.asked.is_some() {
            return None;
        }
        place.asked = Some(Instant::now());
        let (sender, answered) = oneshot::channel();
        let (ask, places_of_thread) = (self.ask, Arc::clone(&self.places));
        let job = move || {
            let bytes = ask(&path);
            places_of_thread.lock().insert(path, Place { asked: None, bytes });
            // The monitor may have given up.
            let _ = sender.send(());
        };
        if thread::Builder::new().name("free-space".to_owned()).spawn(job).is_err() {
            *place = Place::default();
        }
        Some(answered)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    // Relaxed: they guard no other memory.
    static HANGS: AtomicBool = AtomicBool::new(false);
    static ASKED: AtomicU64 = AtomicU64::new(0);

    fn ask(path: &Path) -> Option<u64> {
        if path == Path::new("hanging") {
            ASKED.fetch_add(1, Ordering::Relaxed);
            while HANGS.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Some(7)
    }

    #[tokio::test]
    async fn a_disk_that_hangs_has_no_figure_and_holds_up_one_look_only() {
        let space = FreeSpace::by(ask);
        let [hanging, other] = ["hanging", "other"].map(PathBuf::from);
        let look = || space.look([hanging.clone(), other.clone()]);
        let figures = || [&hanging, &other].map(|path| space.bytes(path));
        look().await;
        assert_eq!(figures(), [Some(7), Some(7)]);
        assert_eq!(space.last_bytes(&other), Some(7));
        HANGS.store(true, Ordering::Relaxed);
        let began = Instant::now();
        look().await;
        assert!(began.elapsed() >= PATIENCE);
        assert_eq!(figures(), [None, Some(7)]);
        look().await;
        assert_eq!(ASKED.load(Ordering::Relaxed), 2, "its thread is still there");
        HANGS.store(false, Ordering::Relaxed);
        while figures() != [Some(7), Some(7)] {
            look().await;
        }
    }
}
