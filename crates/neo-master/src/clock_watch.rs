//! Tids that are far ahead of the master's clock.
//!
//! They strictly increase, whatever the clock does. One that is ahead for a while makes all later
//! ones be ahead: packs and histories, which read them as times, go wrong.

use std::time::Duration;

use tracing::{info, warn};
use zodium_types::Tid;

/// Tids further ahead are reported. Clocks that were set by hand differ by minutes.
const AHEAD_MAX: Duration = Duration::from_mins(10);

/// The clock at the last look.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch {
    looked: Option<Duration>,
    ahead: Option<Ahead>,
}

/// The last tid was ahead of the clock when this was noticed.
#[derive(Debug)]
struct Ahead {
    last_tid: Tid,
    by: Duration,
}

impl ClockWatch {
    /// Compares the last tid with the time, and logs changes; whether the note is another one.
    /// Looks are a few seconds apart.
    pub(crate) fn look(&mut self, last_tid: Tid, now: Duration) -> bool {
        let since = self.looked.replace(now).map(|before| now.saturating_sub(before));
        if let Some(since) = since.filter(|since| *since > AHEAD_MAX) {
            warn!(
                forward_seconds = since.as_secs(),
                "the clock was put forward, or the machine slept. Transaction ids follow it, and \
                 never go back: check it"
            );
        }
        let by = Duration::from_nanos(last_tid.to_unix_nanos()).saturating_sub(now);
        match self.ahead {
            None if by > AHEAD_MAX => {
                warn!(
                    %last_tid, ahead_seconds = by.as_secs(),
                    "transaction ids are ahead of the clock; they go on from the last one. Check \
                     the clock. If it is right now, nothing is lost, but packs and histories see \
                     these transactions in the future"
                );
                self.ahead = Some(Ahead { last_tid, by });
                true
            }
            // It stays so until the clock has come up: no repeats near the limit.
            Some(_) if by.is_zero() => {
                info!("the clock has come up with the transaction ids");
                self.ahead = None;
                true
            }
            _ => false,
        }
    }

    /// What an operator should know of.
    pub(crate) fn note(&self) -> Option<String> {
        self.ahead.as_ref().map(|Ahead { last_tid, by }| {
            format!(
                "transaction {last_tid} is of {} minutes after the time at which the primary \
                 master saw it: its clock was wrong, or is. Check it. If it is right now, nothing \
                 is lost, but packs and histories see such transactions in the future. This note \
                 ends when the clock has come up with them",
                by.as_secs() / 60
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tids_ahead_of_the_clock_are_noted_until_it_has_come_up() {
        let mut watch = ClockWatch::default();
        let (now, minute) = (Duration::from_secs(1_800_000_000), Duration::from_mins(1));
        let tid = |time: Duration| Tid::from_unix_nanos(time.as_nanos() as u64);
        assert!(!watch.look(Tid::ZERO, now), "nothing is committed yet");
        assert!(!watch.look(tid(now + 10 * minute), now), "ten minutes");
        assert_eq!(watch.note(), None);
        let last = tid(now + 90 * minute);
        assert!(watch.look(last, now));
        assert!(!watch.look(last.next(), now + minute), "it is told once");
        let note = watch.note().unwrap();
        assert!(note.starts_with(&format!("transaction {last} is of ")), "{note}");
        assert!(!watch.look(last, now + 89 * minute));
        assert!(watch.look(last, now + 90 * minute));
        assert_eq!(watch.note(), None);
    }
}
