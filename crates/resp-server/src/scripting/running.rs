//! The script that runs. There is one at most: it holds all stripes, or may come to them.
//!
//! A script that takes long is not ended by itself at first: other commands are answered `BUSY`,
//! and a client may end it with `SCRIPT KILL` if it has written nothing. After
//! [`SECONDS_MAX`] it is ended in any case, so that no worker is lost to an endless loop. A server
//! that stops waits for [`STOPPING_SECONDS_MAX`] only: service managers do not wait for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mlua::Lua;
use rustix::time::{ClockId, clock_gettime};

use crate::commands::{Command, flags};
use crate::fail::{Fail, Outcome};
use crate::settings::Settings;

/// Longest time of a script, in seconds.
const SECONDS_MAX: u64 = 60;

/// The same while the server stops. Containers get 10 seconds to end.
const STOPPING_SECONDS_MAX: u64 = 5;

const BUSY: Fail = Fail::fixed(
    "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
);

/// The script that runs, for all workers. It is written by the hold of a script, of which there is
/// one at a time. Other workers read it only to say that the server is busy, so that no order of
/// accesses is needed.
#[derive(Debug)]
pub(crate) struct Running {
    /// When it began, in milliseconds of [`now`] and one more; 0 if none runs.
    began_at: AtomicU64,
    has_written: AtomicBool,
    is_killed: AtomicBool,
    /// When the server began to stop, counted likewise; 0 if it has not.
    stopped_at: AtomicU64,
}

/// Why a script must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Killed,
    TooLong,
    Stopping,
}

impl End {
    pub(super) fn text(self) -> String {
        match self {
            End::Killed => "Script killed by user with SCRIPT KILL.".to_owned(),
            End::TooLong => format!("Script ended after {SECONDS_MAX} seconds."),
            End::Stopping => "Script ended because the server stops.".to_owned(),
        }
    }
}

impl Default for Running {
    fn default() -> Running {
        let [has_written, is_killed] = std::array::from_fn(|_| AtomicBool::new(false));
        let [began_at, stopped_at] = std::array::from_fn(|_| AtomicU64::new(0));
        Running { began_at, has_written, is_killed, stopped_at }
    }
}

impl Running {
    pub(crate) fn begin(&self) {
        self.begin_at(now());
    }

    fn begin_at(&self, at: u64) {
        self.has_written.store(false, Ordering::Relaxed);
        self.is_killed.store(false, Ordering::Relaxed);
        self.began_at.store(at + 1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.began_at.store(0, Ordering::Relaxed);
    }

    pub(super) fn note_write(&self) {
        self.has_written.store(true, Ordering::Relaxed);
    }

    /// Whether the script has executed a command that writes.
    pub(super) fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Relaxed)
    }

    /// Whether the script must end.
    pub(super) fn must_end(&self) -> Option<End> {
        self.must_end_at(now())
    }

    fn must_end_at(&self, now: u64) -> Option<End> {
        if self.is_killed.load(Ordering::Relaxed) {
            return Some(End::Killed);
        }
        // For all scripts together: others may wait for their turn.
        if since(&self.stopped_at, now).is_some_and(|age| age > STOPPING_SECONDS_MAX * 1000) {
            return Some(End::Stopping);
        }
        (self.age(now)? > SECONDS_MAX * 1000).then_some(End::TooLong)
    }

    /// Whether a script runs.
    pub(crate) fn is_any(&self) -> bool {
        self.began_at.load(Ordering::Relaxed) != 0
    }

    /// Whether a script runs, and has run for no longer than it may.
    pub(crate) fn is_in_time(&self) -> bool {
        self.is_in_time_at(now())
    }

    fn is_in_time_at(&self, now: u64) -> bool {
        self.age(now).is_some_and(|age| age <= SECONDS_MAX * 1000)
    }

    /// For how many milliseconds a script has run; `None` if none does.
    fn age(&self, now: u64) -> Option<u64> {
        since(&self.began_at, now)
    }

    /// Has scripts end early: the server stops.
    pub(crate) fn stop(&self) {
        self.stop_at(now());
    }

    fn stop_at(&self, at: u64) {
        self.stopped_at.store(at + 1, Ordering::Relaxed);
    }

    /// Has the script end.
    pub(crate) fn kill(&self) -> Result<(), Fail> {
        if self.began_at.load(Ordering::Relaxed) == 0 {
            return Err(Fail::fixed("NOTBUSY No scripts in execution right now."));
        }
        if self.has_written() {
            return Err(Fail::fixed(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. \
                 You can either wait the script termination or kill the server in a hard way using \
                 the SHUTDOWN NOSAVE command.",
            ));
        }
        self.is_killed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The error of all commands but a few while a script takes long.
    pub(crate) fn check_busy(&self, settings: &Settings, command: &Command) -> Outcome {
        let may_come = flags::ALLOW_BUSY | flags::CONTROL | flags::NO_AUTH;
        if command.flags & may_come != 0 { Ok(()) } else { self.check_not_long(settings) }
    }

    /// The error of commands that cannot be executed while a script takes long.
    pub(crate) fn check_not_long(&self, settings: &Settings) -> Outcome {
        // The first look is cheap: hardly ever does a script run.
        if !self.is_any() {
            return Ok(());
        }
        self.patience(settings).map(drop)
    }

    /// For how long a command may wait for a script, which is `busy-reply-threshold` if none runs;
    /// `BUSY` if it has run for that long.
    pub(crate) fn patience(&self, settings: &Settings) -> Result<Duration, Fail> {
        let threshold = u64::try_from(settings.number("busy-reply-threshold")).unwrap_or(0);
        match self.age(now()) {
            Some(age) if age >= threshold => Err(BUSY),
            age => Ok(Duration::from_millis(threshold - age.unwrap_or(0))),
        }
    }
}

/// Milliseconds since some time, at most one tick of the system behind. To read that tick costs a
/// fraction of what the time itself does, which would be a part of what a short script does.
fn now() -> u64 {
    let tick = clock_gettime(ClockId::MonotonicCoarse);
    let [seconds, nanoseconds] =
        [tick.tv_sec, tick.tv_nsec].map(|number| u64::try_from(number).unwrap_or(0));
    seconds * 1000 + nanoseconds / 1_000_000
}

/// Milliseconds since a time that is kept with one more; `None` for 0.
fn since(time: &AtomicU64, now: u64) -> Option<u64> {
    let time = time.load(Ordering::Relaxed).checked_sub(1)?;
    Some(now.saturating_sub(time))
}

/// Why the script of a state must end now.
pub(super) fn must_end(lua: &Lua) -> Option<String> {
    lua.app_data_ref::<Arc<Running>>()?.must_end().map(End::text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_of_the_server_ends_scripts_early() {
        let running = Running::default();
        running.begin_at(0);
        running.note_write();
        running.stop_at(1000);
        let late = 1000 + STOPPING_SECONDS_MAX * 1000;
        assert_eq!(running.must_end_at(late), None);
        assert_eq!(running.must_end_at(late + 1), Some(End::Stopping));
        // One that had to wait for it has no time of its own.
        running.end();
        running.begin_at(late + 1);
        assert_eq!(running.must_end_at(late + 1), Some(End::Stopping));
    }

    #[test]
    fn a_script_that_has_written_is_not_killed() {
        let running = Running::default();
        assert!(running.kill().unwrap_err().0.starts_with("NOTBUSY"));
        running.begin_at(0);
        let late = SECONDS_MAX * 1000 + 1;
        assert_eq!((running.must_end_at(late - 1), running.is_in_time_at(late - 1)), (None, true));
        assert_eq!(running.must_end_at(late), Some(End::TooLong));
        assert!(!running.is_in_time_at(late));
        running.note_write();
        assert!(running.kill().unwrap_err().0.starts_with("UNKILLABLE"));
        running.begin_at(5);
        running.kill().unwrap();
        assert_eq!(running.must_end_at(5), Some(End::Killed));
        running.end();
        assert!(running.kill().is_err() && !running.is_in_time());
    }
}
