//! Counters and histograms that one thread writes while others read them.
//!
//! Key decision: each has a single writer. So counting is a load and a store in the writer's own
//! cache line, never a locked instruction. Readers add up the totals of all writers.

#[cfg(test)]
#[cfg(loom)]
mod models;

#[cfg(loom)]
use loom::sync::atomic::AtomicU64;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Buckets of a histogram; the last one has no upper bound.
pub const BUCKETS: usize = 27;

/// A counter or gauge that one thread writes and others may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts up; only for the one writer.
    pub fn add(&self, count: u64) {
        // Relaxed, here and below: no value guards other memory.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Counts down, not below 0; only for the one writer.
    pub fn subtract(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_sub(count), Ordering::Relaxed);
    }

    /// The value now, or a moment ago.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram with bounds that double: `UNIT`, 2 `UNIT`, 4 `UNIT` and so on.
///
/// The last bucket has no bound. There is one writer.
#[derive(Debug)]
pub struct Histogram<const UNIT: u64> {
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

/// A histogram of durations: the first bound is a microsecond, the last one 33.5 seconds.
pub type Durations = Histogram<1000>;

/// A histogram of sizes: the first bound is 1, the last one 33.5 million.
pub type Sizes = Histogram<1>;

impl<const UNIT: u64> Default for Histogram<UNIT> {
    fn default() -> Self {
        Histogram { buckets: std::array::from_fn(|_| Counter::default()), sum: Counter::default() }
    }
}

impl<const UNIT: u64> Histogram<UNIT> {
    /// Counts a value `times` over.
    fn count(&self, value: u64, times: u64) {
        if let Some(bucket) = self.buckets.get(bucket(value.div_ceil(UNIT))) {
            bucket.add(times);
        }
        self.sum.add(value.wrapping_mul(times));
    }

    /// The number of values that were counted.
    pub fn values(&self) -> u64 {
        self.buckets.iter().map(Counter::value).sum()
    }
}

impl Durations {
    /// Counts a duration.
    pub fn record(&self, duration: Duration) {
        self.record_times(duration, 1);
    }

    /// Counts a duration `times` over, once for each of as many requests.
    pub fn record_times(&self, duration: Duration, times: u64) {
        self.count(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), times);
    }

    /// The values counted so far, in seconds.
    pub fn distribution(&self) -> Distribution {
        Distribution::of(self, 1e-6, 1e-9)
    }
}

impl Sizes {
    /// Counts a size.
    pub fn record(&self, size: u64) {
        self.count(size, 1);
    }

    /// The values counted so far.
    pub fn distribution(&self) -> Distribution {
        Distribution::of(self, 1.0, 1.0)
    }
}

/// The content of a histogram, as plain data that can be added up.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// The bound of the first bucket, in the base unit; each further bound is the double.
    pub first_bound: f64,
    /// The number of values in each bucket.
    pub buckets: [u64; BUCKETS],
    /// The sum of all values, in the base unit.
    pub sum: f64,
}

impl Distribution {
    fn of<const UNIT: u64>(
        histogram: &Histogram<UNIT>,
        first_bound: f64,
        sum_unit: f64,
    ) -> Distribution {
        Distribution {
            first_bound,
            buckets: std::array::from_fn(|at| histogram.buckets[at].value()),
            sum: histogram.sum.value() as f64 * sum_unit,
        }
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Each bucket with its upper bound; that of the last one is infinite.
    pub fn bounded(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(at, count)| {
            let is_last = at + 1 == BUCKETS;
            let bound = self.first_bound * (1_u64 << at) as f64;
            (if is_last { f64::INFINITY } else { bound }, *count)
        })
    }

    /// Adds the values of another histogram of the same unit.
    pub fn add(&mut self, other: &Distribution) {
        for (mine, more) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += more;
        }
        self.sum += other.sum;
    }
}

/// The bucket of a value in units: the first whose bound, a power of two, is not below it.
fn bucket(value: u64) -> usize {
    let bits = u64::BITS - value.saturating_sub(1).leading_zeros();
    (bits as usize).min(BUCKETS - 1)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_belongs_below_it() {
        assert_eq!([0, 1, 2, 3, 4, 5, 8, 9].map(bucket), [0, 0, 1, 2, 2, 3, 3, 4]);
        assert_eq!(bucket(1 << 25), BUCKETS - 2);
        assert_eq!(bucket((1 << 25) + 1), BUCKETS - 1);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn bounds_double_from_a_microsecond() {
        let durations = Durations::default();
        for micros in [1, 2, 1000, 40_000_000] {
            durations.record(Duration::from_micros(micros));
        }
        durations.record_times(Duration::from_nanos(1001), 3);
        let counted: Vec<_> =
            durations.distribution().bounded().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(1e-6, 1), (2e-6, 4), (1024e-6, 1), (f64::INFINITY, 1)]);
        assert_eq!(durations.values(), 7);
        assert!((durations.distribution().sum - 40.001_006_003).abs() < 1e-9);
    }

    #[test]
    fn totals_are_those_of_all_writers() {
        let (one, other) = (Sizes::default(), Sizes::default());
        one.record(3);
        other.record(4);
        other.record(5);
        let mut total = one.distribution();
        total.add(&other.distribution());
        assert_eq!((total.count(), total.sum, total.buckets[2], total.buckets[3]), (3, 12.0, 2, 1));
    }

    #[test]
    fn counters_do_not_fall_below_nothing() {
        let counter = Counter::default();
        counter.add(2);
        counter.subtract(3);
        assert_eq!(counter.value(), 0);
    }
}
