//! What an entry keeps of its uses: the time of the last one, or how frequent they are.
//!
//! Key decision: both are one word of four bytes. A frequency is marked by its first byte, so a
//! change of the policy leaves no word that is taken for the other kind. Times have another first
//! byte from July 1971 on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::random_below;

/// What entries keep of their uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uses {
    /// The time of the last use.
    #[default]
    Times,
    /// A counter that grows ever more rarely with each use, and falls while there is none.
    Frequencies {
        /// How much more rarely the counter grows the higher it is; 0 counts each use.
        log_factor: u32,
        /// Minutes after which the counter falls by one; 0 for never.
        decay_minutes: u32,
    },
}

/// The counter of a new key: it is not the first to go.
const FIRST_COUNT: u8 = 5;
/// The first byte of a frequency; its minute and its counter follow.
const MARK: u32 = 1 << 24;

/// The uses of one entry. Zero: there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used(u32);

impl Used {
    /// What it is after a use at a time in milliseconds since 1970.
    pub(crate) fn again(self, now: u64, uses: Uses) -> Used {
        let Uses::Frequencies { log_factor, decay_minutes } = uses else {
            return Used(u32::try_from(now / 1000).unwrap_or(u32::MAX));
        };
        if self.0 == 0 {
            return Used::counted(now, FIRST_COUNT);
        }
        let count = self.frequency(now, decay_minutes);
        let above = usize::from(count.saturating_sub(FIRST_COUNT));
        let one_in = above.saturating_mul(log_factor as usize).saturating_add(1);
        let grows = random_below(one_in) == 0;
        Used::counted(now, count.saturating_add(u8::from(grows)))
    }

    /// A counter at a time in milliseconds since 1970.
    pub(crate) fn counted(now: u64, count: u8) -> Used {
        Used(MARK | u32::from(minute(now)) << 8 | u32::from(count))
    }

    /// A last use, in seconds since 1970.
    pub(crate) fn at(seconds: u64) -> Used {
        Used(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// The counter as it has fallen until a time.
    pub(crate) fn frequency(self, now: u64, decay_minutes: u32) -> u8 {
        let (minutes, count) = if self.is_frequency() {
            let [_, count] = (self.0 as u16).to_be_bytes();
            (minutes_since((self.0 >> 8) as u16, now).into(), count)
        } else {
            ((now / 1000).saturating_sub(self.0.into()) / 60, FIRST_COUNT)
        };
        let periods = minutes.checked_div(decay_minutes.into()).unwrap_or(0);
        count.saturating_sub(u8::try_from(periods).unwrap_or(u8::MAX))
    }

    /// When it was used last, in seconds since 1970; of a frequency to the minute.
    pub(crate) fn seconds(self, now: u64) -> u32 {
        if !self.is_frequency() {
            return self.0;
        }
        let minutes = u64::from(minutes_since((self.0 >> 8) as u16, now));
        u32::try_from((now / 1000).saturating_sub(minutes * 60)).unwrap_or(u32::MAX)
    }

    fn is_frequency(self) -> bool {
        self.0 >> 24 == MARK >> 24
    }
}

fn minute(now: u64) -> u16 {
    (now / 60_000) as u16
}

/// Minutes since one that was kept. They go round in 45 days.
///
/// The time of a use may be behind that of the last one: the clocks of workers differ, and the time
/// of a script stands still.
fn minutes_since(then: u16, now: u64) -> u16 {
    /// Minutes that it may be behind.
    const BEHIND_MAX: u16 = 60;
    match minute(now).wrapping_sub(then) {
        passed if passed > u16::MAX - BEHIND_MAX => 0,
        passed => passed,
    }
}

/// The uses of an entry, which readers note beside each other. That one of two simultaneous uses
/// is lost does not matter.
#[derive(Debug, Default)]
pub(crate) struct SharedUsed(AtomicU32);

impl SharedUsed {
    pub(crate) fn new(used: Used) -> SharedUsed {
        SharedUsed(AtomicU32::new(used.0))
    }

    // Relaxed: no other data depends on it.
    pub(crate) fn get(&self) -> Used {
        Used(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, used: Used) {
        self.0.store(used.0, Ordering::Relaxed);
    }
}

/// What all entries of a keyspace keep. Read by each hold, and hardly ever written.
#[derive(Debug, Default)]
pub(crate) struct SharedUses(AtomicU64);

/// Marks frequencies; the two numbers are in the bits below, 31 each.
const FREQUENCIES: u64 = 1 << 63;
const NUMBER_BITS: u32 = 31;
const NUMBER_MAX: u32 = (1 << NUMBER_BITS) - 1;

impl SharedUses {
    // Relaxed: no other data depends on it.
    pub(crate) fn set(&self, uses: Uses) {
        let word = match uses {
            Uses::Times => 0,
            Uses::Frequencies { log_factor, decay_minutes } => {
                let [log_factor, decay_minutes] =
                    [log_factor, decay_minutes].map(|number| u64::from(number.min(NUMBER_MAX)));
                FREQUENCIES | log_factor << NUMBER_BITS | decay_minutes
            }
        };
        self.0.store(word, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Uses {
        let word = self.0.load(Ordering::Relaxed);
        match word & FREQUENCIES {
            0 => Uses::Times,
            _ => Uses::Frequencies {
                log_factor: (word >> NUMBER_BITS) as u32 & NUMBER_MAX,
                decay_minutes: word as u32 & NUMBER_MAX,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;
    /// In November 2026.
    const NOW: u64 = 1_795_000_000_000;

    fn frequencies(log_factor: u32, decay_minutes: u32) -> Uses {
        Uses::Frequencies { log_factor, decay_minutes }
    }

    #[test]
    fn each_use_counts_without_a_factor_and_time_takes_away() {
        let uses = frequencies(0, 2);
        let (mut used, mut now, mut model) = (Used::default(), NOW, 4_u64);
        for step in 0..600_u64 {
            used = used.again(now, uses);
            model = (model + 1).min(255);
            assert_eq!(u64::from(used.frequency(now, 2)), model, "step {step}");
            let minutes = if step % 100 == 99 { step / 10 } else { 0 };
            now += minutes * MINUTE;
            // Whole periods since the last use, each from its minute on.
            model = model.saturating_sub(minutes / 2);
            assert_eq!(u64::from(used.frequency(now, 2)), model, "step {step}");
        }
        assert_eq!(used.frequency(now + 10_000 * MINUTE, 0), 255, "0 minutes: it never falls");
    }

    #[test]
    fn a_factor_makes_high_counters_rare() {
        // Uses until a counter has grown by 10 are 1 + sum of (factor * n + 1) on average.
        let uses_until = |factor: u32, count: u8| {
            let (mut used, mut number) = (Used::default().again(NOW, frequencies(factor, 1)), 0);
            while used.frequency(NOW, 1) < count {
                used = used.again(NOW, frequencies(factor, 1));
                number += 1;
            }
            f64::from(number)
        };
        let mean = (0..400).map(|_| uses_until(10, 15)).sum::<f64>() / 400.0;
        // The mean is 460, and 400 runs spread by 8: seven times that on either side.
        assert!((400.0..520.0).contains(&mean), "{mean}");
    }

    #[test]
    fn a_use_whose_time_is_behind_that_of_the_last_one_takes_nothing_away() {
        let used = Used::counted(NOW, 200);
        let before = NOW - 2 * MINUTE;
        assert_eq!(used.frequency(before, 1), 200);
        assert_eq!(u64::from(used.seconds(before)), before / 1000);
        let used = used.again(before, frequencies(0, 1));
        assert_eq!(used.frequency(NOW, 1), 201 - 2);
        assert_eq!(Used::counted(NOW, 200).frequency(NOW + 190 * MINUTE, 1), 10);
    }

    #[test]
    fn a_word_of_the_other_kind_is_told_apart() {
        let time = Used::default().again(NOW, Uses::Times);
        assert_eq!(time.seconds(NOW), 1_795_000_000);
        assert_eq!(time.frequency(NOW, 1), FIRST_COUNT);
        assert_eq!(time.frequency(NOW + 3 * MINUTE, 1), FIRST_COUNT - 3);
        let counted = Used::counted(NOW, 200);
        assert_eq!(counted.frequency(NOW, 1), 200);
        assert_eq!(counted.seconds(NOW + 7 * MINUTE), 1_795_000_000);
        assert_eq!(counted.again(NOW, Uses::Times), time);
    }

    #[test]
    fn what_is_shared_comes_back() {
        let shared = SharedUses::default();
        assert_eq!(shared.now(), Uses::Times);
        for uses in [frequencies(10, 1), frequencies(0, 0), frequencies(NUMBER_MAX, 7)] {
            shared.set(uses);
            assert_eq!(shared.now(), uses);
        }
        shared.set(Uses::Times);
        assert_eq!(shared.now(), Uses::Times);
    }
}
