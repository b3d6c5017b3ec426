//! The thread that reminds workers of notices that wait.
//!
//! A commit is posted to every worker, but only the worker of its client is woken at once. The
//! others take it when they are awake anyway. The log writer cannot look after them: it may be in a
//! sync for seconds.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use zodium_storage::StorageError;

use crate::Storage;

/// The signals between the log writer and the reminder.
#[derive(Default)]
pub(crate) struct Reminder {
    state: Mutex<State>,
    /// Wakes a reminder that has nothing to do.
    armed: Condvar,
    /// Wakes a reminder that waits for its time.
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    is_armed: bool,
    is_stopping: bool,
}

impl Reminder {
    /// Says that notices wait. While the reminder waits for the time of earlier ones, this wakes no
    /// thread.
    pub(crate) fn arm(&self) {
        let mut state = self.state.lock();
        if !state.is_armed {
            state.is_armed = true;
            self.armed.notify_one();
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.armed.notify_one();
        self.stopped.notify_one();
    }

    /// Waits until notices wait; false when stopped.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_armed && !state.is_stopping {
            self.armed.wait(&mut state);
        }
        state.is_armed = false;
        !state.is_stopping
    }

    /// Waits for `time`; false when stopped.
    fn sleep(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_stopping {
            self.stopped.wait_for(&mut state, time);
        }
        !state.is_stopping
    }
}

impl Storage {
    /// Starts the reminder.
    pub(crate) fn start_reminder(self: &Arc<Storage>) -> Result<(), StorageError> {
        let storage = Arc::clone(self);
        let thread = std::thread::Builder::new().name("notice-reminder".to_owned());
        let spawned = thread.spawn(move || {
            while storage.reminder.wait() {
                while let Some(time) = storage.remind() {
                    if !storage.reminder.sleep(time) {
                        return;
                    }
                }
            }
        });
        let name = self.store.name();
        let refused =
            |error| StorageError::Io(format!("{name}: start the notice reminder: {error}").into());
        *self.reminder_thread.lock() = Some(spawned.map_err(refused)?);
        Ok(())
    }
}
