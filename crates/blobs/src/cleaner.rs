//! Removing files in the background: transactions are given up on workers, which must not wait
//! for a disk.

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::warn;
use zodium_disk::{Disk, DiskFile};

/// The thread ends when there was nothing to remove for so long.
const IDLE: Duration = Duration::from_secs(10);

/// Files to be removed, and the intent that names them, which goes last.
#[derive(Debug, Default)]
pub(crate) struct Refuse {
    /// Paths, and the open file if there is one: to close it may take longer than to remove it.
    pub(crate) files: Vec<(PathBuf, Option<Arc<dyn DiskFile>>)>,
    pub(crate) intent: Option<PathBuf>,
    /// Make the removal durable: their names may be.
    pub(crate) is_durable: bool,
}

/// Takes files and removes them on a thread of its own, which lives while there is work.
#[derive(Debug)]
pub(crate) struct Cleaner {
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Refuse>,
    has_thread: bool,
    is_busy: bool,
}

impl Cleaner {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Arc<Cleaner> {
        Arc::new(Cleaner { disk, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Has files removed soon.
    pub(crate) fn take(self: &Arc<Self>, refuse: Refuse) {
        let mut state = self.state.lock();
        state.waiting.push(refuse);
        if state.has_thread {
            self.changed.notify_all();
            return;
        }
        let cleaner = Arc::clone(self);
        let thread = std::thread::Builder::new().name("blob-cleaner".to_owned());
        state.has_thread = thread.spawn(move || cleaner.run()).is_ok();
        if !state.has_thread {
            let waiting = mem::take(&mut state.waiting);
            drop(state);
            self.remove_all(waiting);
        }
    }

    /// Returns when all that was taken is removed. Blocking.
    pub(crate) fn settle(&self) {
        let mut state = self.state.lock();
        while state.is_busy || !state.waiting.is_empty() {
            self.changed.wait(&mut state);
        }
    }

    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            if state.waiting.is_empty() {
                let timed_out = self.changed.wait_for(&mut state, IDLE).timed_out();
                if state.waiting.is_empty() && timed_out {
                    state.has_thread = false;
                    return;
                }
                continue;
            }
            let waiting = mem::take(&mut state.waiting);
            state.is_busy = true;
            drop(state);
            self.remove_all(waiting);
            state = self.state.lock();
            state.is_busy = false;
            self.changed.notify_all();
        }
    }

    fn remove_all(&self, waiting: Vec<Refuse>) {
        for refuse in waiting {
            self.remove(refuse);
        }
    }

    /// The intent stays when the files may: the next opening tries again.
    fn remove(&self, refuse: Refuse) {
        let mut is_clean = true;
        for (path, _) in &refuse.files {
            let mut removed = self.disk.remove(path);
            if refuse.is_durable {
                removed = removed.and_then(|()| self.disk.sync_folder_of(path));
            }
            if let Err(error) = removed {
                warn!(file = %path.display(), %error, "could not be removed");
                is_clean = false;
            }
        }
        if let Some(intent) = refuse.intent
            && is_clean
            && let Err(error) = self.disk.remove(&intent)
        {
            warn!(file = %intent.display(), %error, "could not be removed");
        }
    }
}
