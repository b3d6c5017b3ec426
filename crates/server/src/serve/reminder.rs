//! Decides when a trouble that lasts is warned of: when it is old enough, and then now and then.

use std::time::Duration;

/// Interval between two warnings of one trouble.
const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// The last warning of a trouble, which `K` tells from others of its kind.
pub(super) struct Reminder<K>(Option<(K, Duration)>);

impl<K> Default for Reminder<K> {
    fn default() -> Reminder<K> {
        Reminder(None)
    }
}

impl<K: PartialEq> Reminder<K> {
    /// Whether the trouble, which is `age` old, is to be warned of now; first at `first`.
    pub(super) fn is_due(&mut self, trouble: K, age: Duration, first: Duration) -> bool {
        let told = self.0.as_ref().filter(|(told, _)| *told == trouble);
        let is_due = age >= told.map_or(first, |(_, age)| *age + INTERVAL);
        if is_due {
            self.0 = Some((trouble, age));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_told_after_a_minute_and_then_every_ten_minutes() {
        let mut reminder = Reminder::default();
        let mut told = |trouble: u64, ages: &[u64]| {
            let mut is_due =
                |age| reminder.is_due(trouble, Duration::from_secs(age), Duration::from_secs(60));
            ages.iter().copied().filter(|age| is_due(*age)).collect::<Vec<_>>()
        };
        assert_eq!(told(1, &[0, 59, 60, 70, 650, 660, 1250, 1260]), [60, 660, 1260]);
        assert_eq!(told(2, &[5, 61, 62]), [61], "another one");
    }
}
