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

/// What a check has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The server lives, as far as is known, or no check was due.
    Life,
    /// The server has sent nothing since the last check: it has to be asked.
    Silence,
    /// It has not answered a ping.
    Death,
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
        let heard = connection.heard.load(Ordering::Relaxed);
        match self.look(Instant::now(), heard, connection.is_writing()) {
            Found::Life => {}
            Found::Silence => {
                // On failure the connection has ended, which the connector's loop sees.
                let _ = connection.ping();
            }
            Found::Death => {
                let silence = (self.interval * CHECKS).as_secs_f64();
                let reason = format!("the server has said nothing for {silence} seconds");
                connection.end(ClientError::disconnected(reason));
            }
        }
    }

    fn look(&mut self, now: Instant, heard: u64, is_writing: bool) -> Found {
        if now < self.next_check {
            return Found::Life;
        }
        self.next_check = now + self.interval;
        if heard != self.heard || is_writing {
            (self.heard, self.has_pinged) = (heard, false);
            return Found::Life;
        }
        if std::mem::replace(&mut self.has_pinged, true) { Found::Death } else { Found::Silence }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_pinged_at_the_second_check_and_dead_at_the_third() {
        let mut liveness = LivenessCheck::new(Duration::from_secs(30));
        let start = liveness.next_check();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(liveness.look(start, 5, false), Found::Life);
        assert_eq!(liveness.look(at(10), 5, false), Found::Silence);
        for early in [10, 11, 19] {
            assert_eq!(liveness.look(at(early), 5, false), Found::Life, "{early}: not due");
        }
        assert_eq!(liveness.look(at(20), 5, false), Found::Death);
    }

    #[test]
    fn a_server_that_answers_or_takes_a_request_lives() {
        let mut liveness = LivenessCheck::new(Duration::from_secs(30));
        let start = liveness.next_check();
        let looks = [(0, false), (0, true), (0, false), (1, false), (1, false)];
        let found = looks.iter().enumerate().map(|(check, (heard, is_writing))| {
            let now = start + Duration::from_secs(10 * check as u64);
            liveness.look(now, *heard, *is_writing)
        });
        let pinged = [Found::Silence, Found::Life, Found::Silence, Found::Life, Found::Silence];
        assert_eq!(found.collect::<Vec<_>>(), pinged);
    }
}
