//! Counts new connections by source, so that a client that connects in a loop is found.

use std::cmp::Reverse;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::log_limiter::{OTHER_SOURCES, SOURCES_MAX, source_of};

/// The length of a period.
const PERIOD: Duration = Duration::from_secs(60);

/// New connections by source, in the current minute and in the one before it.
#[derive(Debug, Default)]
pub struct Arrivals(Mutex<Periods>);

#[derive(Debug, Default)]
struct Periods {
    /// When the current one began; `None` before the first connection.
    began: Option<Instant>,
    current: FxHashMap<String, u64>,
    last: FxHashMap<String, u64>,
}

impl Arrivals {
    /// Counts a connection.
    pub(crate) fn note(&self, peer: &str) {
        let mut periods = self.0.lock();
        periods.turn(Instant::now());
        let mut source = source_of(peer);
        if periods.current.len() >= SOURCES_MAX && !periods.current.contains_key(&source) {
            OTHER_SOURCES.clone_into(&mut source);
        }
        *periods.current.entry(source).or_default() += 1;
    }

    /// The sources with the most connections, at most `count_max`. Each has its number in the
    /// current minute or in the one before, whichever is larger.
    pub fn most(&self, count_max: usize) -> Vec<(String, u64)> {
        let mut periods = self.0.lock();
        periods.turn(Instant::now());
        let mut counts = periods.last.clone();
        for (source, count) in &periods.current {
            let before = counts.entry(source.clone()).or_default();
            *before = (*before).max(*count);
        }
        drop(periods);
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable_by(|(a, one), (b, other)| (Reverse(one), a).cmp(&(Reverse(other), b)));
        counts.truncate(count_max);
        counts
    }
}

impl Periods {
    /// Begins the period of now, if it is not the current one.
    fn turn(&mut self, now: Instant) {
        let began = *self.began.get_or_insert(now);
        let passed = now.duration_since(began);
        if passed < PERIOD {
            return;
        }
        self.last = std::mem::take(&mut self.current);
        if passed >= 2 * PERIOD {
            self.last.clear();
        }
        self.began = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str, count: u64) -> (String, u64) {
        (source.to_owned(), count)
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_connects_in_a_loop_is_first_for_a_minute_or_two() {
        let arrivals = Arrivals::default();
        arrivals.note("10.0.0.1:1");
        (1..40).for_each(|port| arrivals.note(&format!("10.0.0.2:{port}")));
        let both = [of("10.0.0.2", 39), of("10.0.0.1", 1)];
        assert_eq!(arrivals.most(5), both);
        assert_eq!(arrivals.most(1), both[..1]);
        tokio::time::advance(PERIOD).await;
        arrivals.note("10.0.0.1:2");
        assert_eq!(arrivals.most(5), both, "the minute before counts");
        tokio::time::advance(PERIOD).await;
        assert_eq!(arrivals.most(5), [of("10.0.0.1", 1)]);
        tokio::time::advance(2 * PERIOD).await;
        assert_eq!(arrivals.most(5), []);
    }

    #[test]
    fn countless_sources_take_little_memory() {
        let arrivals = Arrivals::default();
        for number in 0..4 * SOURCES_MAX {
            let [.., high, low] = number.to_be_bytes();
            arrivals.note(&format!("10.0.{high}.{low}:1"));
        }
        assert_eq!(arrivals.most(usize::MAX).len(), SOURCES_MAX + 1);
        assert_eq!(arrivals.most(1), [of(OTHER_SOURCES, 3 * SOURCES_MAX as u64)]);
    }
}
