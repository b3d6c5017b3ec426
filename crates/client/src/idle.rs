//! The connector's part of a connection: it reads while nobody waits for an answer, and gives signs
//! of life.
//!
//! Callers that come one after the other must not meet it at the socket: each answer would wake
//! two threads. So it goes there only when for a moment nobody has read, and is called away by the
//! first who wants to.

use std::cell::Cell;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ClientError;
use crate::connection::Connection;
use crate::table::Watch;

/// For so long nobody must have begun to read before the connector does.
const IDLE_DELAY: Duration = Duration::from_millis(10);
/// Looks after the server within the longest silence: one finds nothing new, and one no answer.
const CHECKS: u32 = 3;

/// Looks whether the server is still there. A connection whose other end has vanished without a
/// word looks like one on which nothing happens.
pub(crate) struct LivenessCheck {
    interval: Duration,
    next_check: Instant,
    /// What had been heard at the last look.
    heard: u64,
    /// Whether the server was asked then, since there was nothing new.
    has_pinged: bool,
}

impl LivenessCheck {
    /// A server that is silent for `silence_max` is gone, though it had a third of that to answer.
    pub(crate) fn new(silence_max: Duration) -> LivenessCheck {
        let interval = silence_max / CHECKS;
        LivenessCheck {
            interval,
            next_check: Instant::now() + interval,
            heard: 0,
            has_pinged: false,
        }
    }

    pub(crate) fn next_check(&self) -> Instant {
        self.next_check
    }

    /// Looks, if it is time to: asks a server that has said nothing since the last look, and ends
    /// the connection when that was asked already.
    pub(crate) fn check(&mut self, connection: &Connection) {
        let now = Instant::now();
        if now < self.next_check {
            return;
        }
        self.next_check = now + self.interval;
        let heard = connection.heard.load(Ordering::Relaxed);
        if heard != self.heard || connection.is_writing() {
            self.heard = heard;
            self.has_pinged = false;
        } else if self.has_pinged {
            let silence = (self.interval * CHECKS).as_secs_f64();
            let reason = format!("the server has said nothing for {silence} seconds");
            connection.end(ClientError::disconnected(reason));
        } else {
            self.has_pinged = true;
            // If that fails the connection has ended, which is seen by who looks next.
            let _ = connection.ping();
        }
    }
}

impl Connection {
    /// Keeps it until it ends, or until `deadline`.
    pub(crate) fn read_while_idle(&self, deadline: Instant) {
        let mut seen = u64::MAX;
        while self.end_reason().is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let watch = self.table.lock().watch(&mut seen);
            match watch {
                Watch::Recheck => thread::park_timeout(IDLE_DELAY.min(left)),
                Watch::UntilWoken => thread::park_timeout(left),
                Watch::Socket => self.watch_socket(left),
            }
        }
    }

    fn watch_socket(&self, left: Duration) {
        let has_something = self.wait_at_socket(left);
        let leads = self.table.lock().lead_as_connector(has_something);
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
