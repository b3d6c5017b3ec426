//! The keeper's part of a connection: it reads while nobody waits for an answer, and gives signs
//! of life.
//!
//! Callers that come one after the other must not meet it at the socket: each answer would wake
//! two threads. So it goes there only when for a moment nobody has read, and is called away by the
//! first who wants to.

use std::cell::Cell;
use std::io::Read;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::connection::Connection;
use crate::table::Watch;

/// For so long nobody must have begun to read before the keeper does.
const MOMENT: Duration = Duration::from_millis(10);

impl Connection {
    /// Keeps it until it ends, or until `deadline`.
    pub(crate) fn keep(&self, deadline: Instant) {
        let mut seen = u64::MAX;
        while self.end_reason().is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let watch = self.table.lock().watch(&mut seen);
            match watch {
                Watch::Moment => thread::park_timeout(MOMENT.min(left)),
                Watch::UntilTold => thread::park_timeout(left),
                Watch::Socket => self.watch_socket(left),
            }
        }
    }

    fn watch_socket(&self, left: Duration) {
        let has_something = self.wait_at_socket(left);
        let leads = self.table.lock().lead_as_keeper(has_something);
        if leads {
            // Once: who has come to wait for an answer meanwhile reads on.
            let looked = Cell::new(false);
            self.lead(&|| looked.replace(true));
        }
        let mut calls = [0; 64];
        while matches!((&self.call_away.1).read(&mut calls), Ok(count) if count > 0) {}
    }

    /// Whether there is something to read; `false` also when it was called away.
    fn wait_at_socket(&self, left: Duration) -> bool {
        let mut waits = [
            PollFd::from_borrowed_fd(self.transport.handle(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.call_away.1.as_fd(), PollFlags::IN),
        ];
        let limit = Timespec::try_from(left).ok();
        let polled = poll(&mut waits, limit.as_ref());
        polled.is_ok() && !waits[0].revents().is_empty()
    }
}
