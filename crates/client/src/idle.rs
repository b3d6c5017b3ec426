//! What the connector thread does with an established connection: it reads while no caller does,
//! and checks that the server is alive.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::ClientError;
use crate::connection::Connection;

/// Checks within the longest silence: the first finds no new data and pings, a later one finds no
/// reply.
const CHECKS: u32 = 3;

/// Detects dead peers. A connection whose peer has vanished without closing looks like an idle one.
pub(crate) struct LivenessCheck {
    interval: Duration,
    next_check: Instant,
    /// Value of `Connection::heard` at the last check.
    heard: u64,
    /// Whether the last check found no new data and sent a ping.
    has_pinged: bool,
}

impl LivenessCheck {
    /// Creates a check that ends the connection after `silence_max` without data, of which the
    /// server has had a third to answer a ping.
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

    /// Runs the check if it is due. Pings a server that has sent nothing since the last check, and
    /// ends the connection if it was pinged already.
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
            // On failure the connection has ended, which the connector's loop sees.
            let _ = connection.ping();
        }
    }
}

impl Connection {
    /// Maintains the connection until it ends, or until `deadline`.
    pub(crate) fn read_while_idle(&self, deadline: Instant) {
        while self.end_reason().is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.turns.attend(self, Some(left));
        }
    }
}
