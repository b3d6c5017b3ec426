//! The lines on clusters that `neoctl print summary` prints.

use zodium_neo::{ClusterState, tid_time};
use zodium_types::{CalendarTime, Tid};

use crate::health::Health;

/// What NEO writes for a lag of less than a microsecond, a Greek letter.
const EPSILON: &str = "\u{3b5}";

/// The line on one cluster, and what it says of the last transaction.
pub(crate) struct Line {
    pub(crate) text: String,
    /// The last transaction that the cluster has, if it is known.
    pub(crate) tid: Option<Tid>,
    /// Whether a backup cluster is behind further than it may be.
    pub(crate) is_lagging: bool,
}

/// A backup cluster is compared with the last transaction of its upstream cluster.
#[derive(Clone, Copy)]
pub(crate) struct Upstream {
    pub(crate) tid: Tid,
    pub(crate) lag_seconds_max: f64,
}

/// Writes the line on a cluster; a backup has an `upstream` if the upstream cluster is known.
pub(crate) fn line(health: &Health, upstream: Option<Upstream>) -> Line {
    let mut text = health.state.map_or("None", ClusterState::name).to_owned();
    let cells = health.cells.iter().flatten();
    let cells: Vec<_> = cells.map(|(state, count)| format!("{state}={count}")).collect();
    if !cells.is_empty() {
        text = format!("{text}; {}", cells.join(", "));
    }
    if health.down > 0 {
        text = format!("{text}; DOWN={}", health.down);
    }
    let (tid, upstream) = match health.state {
        Some(ClusterState::BackingUp) => (health.backup_tid, upstream),
        Some(ClusterState::Running) => (health.last_tid, None),
        _ => (None, None),
    };
    let Some(tid) = tid else { return Line { text, tid: None, is_lagging: false } };
    let text = format!("{text}; ltid={tid}");
    let Some(upstream) = upstream else {
        return Line {
            text: format!("{text} ({})", tid_time(tid)),
            tid: Some(tid),
            is_lagging: false,
        };
    };
    let lag = seconds_between(tid, upstream.tid);
    if lag == 0.0 && tid < upstream.tid {
        // Less than can be said.
        let is_lagging = upstream.lag_seconds_max <= 0.0;
        return Line { text: format!("{text}; lag={EPSILON}"), tid: Some(tid), is_lagging };
    }
    let is_lagging = upstream.lag_seconds_max < lag;
    Line { text: format!("{text}; lag={}", python_number(lag)), tid: Some(tid), is_lagging }
}

/// Seconds from one transaction to another, in whole microseconds.
fn seconds_between(from: Tid, until: Tid) -> f64 {
    (micros(until) - micros(from)) as f64 / 1e6
}

/// Microseconds from the year 0; a day that its month does not have is one of the next month.
fn micros(tid: Tid) -> i64 {
    let CalendarTime { year, month, day, hour, minute, minute_nanos } = CalendarTime::from_tid(tid);
    let days_before_month = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let leap_day = u64::from(is_leap && month > 2);
    let before = year.saturating_sub(1);
    let days = before * 365 + before / 4 - before / 100 + before / 400;
    let days = days + days_before_month[(month as usize - 1) % 12] + leap_day + day;
    let micros = ((days * 24 + hour) * 60 + minute) * 60_000_000 + minute_nanos / 1000;
    // A tid has at most the year 13,000.
    micros as i64
}

/// A number as Python writes it.
fn python_number(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-4 {
        let text = format!("{number:e}");
        return match text.split_once("e-") {
            Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
            None => text,
        };
    }
    format!("{number:?}")
}

#[cfg(test)]
mod tests {
    use zodium_neo::CellState;

    use super::*;

    fn health(state: ClusterState) -> Health {
        Health {
            state: Some(state),
            cells: Some(vec![(CellState::UpToDate, 2)]),
            ..Health::default()
        }
    }

    /// A tid so many steps after a moment; 71,582,788 steps are a second.
    fn tid(steps: u64) -> Tid {
        Tid(0x0400_0000_0000_0000 + steps)
    }

    #[test]
    fn lines_are_those_of_neo() {
        let line = |health: &Health| line(health, None).text;
        assert_eq!(line(&Health::default()), "None");
        assert_eq!(line(&health(ClusterState::Running)), "RUNNING; UP_TO_DATE=2");
        let last_tid = Some(Tid::ZERO);
        let running = Health { last_tid, ..health(ClusterState::Running) };
        assert_eq!(
            line(&running),
            "RUNNING; UP_TO_DATE=2; ltid=0000000000000000 (1900-01-01 00:00:00)"
        );
        let recovering = Health { last_tid, down: 1, ..health(ClusterState::Recovering) };
        assert_eq!(line(&recovering), "RECOVERING; UP_TO_DATE=2; DOWN=1");
        let backup_tid = Some(tid(1 << 31));
        let backing_up = Health { backup_tid, ..health(ClusterState::BackingUp) };
        assert_eq!(
            line(&backing_up),
            "BACKINGUP; UP_TO_DATE=2; ltid=0400000080000000 (2025-04-11 09:04:30)"
        );
    }

    #[test]
    fn the_lag_of_a_backup_is_as_python_writes_it() {
        let second = 71_582_788;
        let backup_tid = Some(tid(0));
        let backup = Health { backup_tid, ..health(ClusterState::BackingUp) };
        for (steps, lag, lags) in [
            (0, "0.0", false),
            (1, EPSILON, false),
            (3 * second + 10, "3.0", true),
            (3 * second / 2 + 10, "1.5", true),
            (720, "1e-05", false),
            (1 << 32, "60.0", true),
        ] {
            let upstream = Upstream { tid: tid(steps), lag_seconds_max: 1.0 };
            let line = line(&backup, Some(upstream));
            let expected = format!("BACKINGUP; UP_TO_DATE=2; ltid=0400000000000000; lag={lag}");
            assert_eq!((line.text, line.is_lagging), (expected, lags));
        }
        let strict = Upstream { tid: tid(1), lag_seconds_max: 0.0 };
        assert!(line(&backup, Some(strict)).is_lagging);
    }

    #[test]
    fn days_are_counted_over_months_and_leap_years() {
        let day = |year, month, day| {
            let time = CalendarTime { year, month, day, hour: 0, minute: 0, minute_nanos: 0 };
            time.to_tid()
        };
        for (from, until, days) in [
            (day(2024, 2, 28), day(2024, 3, 1), 2),
            (day(2025, 2, 28), day(2025, 3, 1), 1),
            (day(1900, 1, 1), day(1970, 1, 1), 25_567),
            (day(2025, 12, 31), day(2026, 1, 1), 1),
        ] {
            assert_eq!(seconds_between(from, until), f64::from(days) * 86_400.0);
        }
    }
}
