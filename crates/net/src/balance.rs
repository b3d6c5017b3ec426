//! The decisions of balancing: which workers are used, and which of them hand over connections.
//!
//! Key decision: a worker's load is the time in which it has something to do, on a processor or
//! waiting for one. Beside other busy programs several workers get more of the processors than one
//! does. More workers than processors are never used: they would wait for each other.

use crate::door::Share;

/// Load from which on a worker hands over half of its connections.
const BUSY: f64 = 0.75;
/// Highest load of a worker in use that takes some over; otherwise the next worker is used.
const TAKES: f64 = 0.4;
/// Mean load up to which fewer workers are used.
const GATHERED: f64 = 0.5;
/// Periods without a busy worker until fewer are used: bursts come again.
const CALM_PERIODS: u32 = 20;

/// The workers in use: the first ones of all.
#[derive(Debug)]
pub(crate) struct Balance {
    all: usize,
    used: usize,
    /// Periods without a busy worker.
    calm: u32,
}

/// Load and connections of a worker in use, for one period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Runnable time by the time of the clock, 0 to 1.
    pub(crate) load: f64,
    pub(crate) connections: usize,
}

/// What a worker is to hand over, and to which workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) from: usize,
    pub(crate) share: Share,
    pub(crate) to: Vec<usize>,
}

impl Balance {
    /// Of so many workers on so many processors; the first one is used.
    pub(crate) fn new(workers: usize, processors: usize) -> Balance {
        let all = workers.min(processors.max(1));
        Balance { all, used: 1.min(all), calm: 0 }
    }

    /// How many workers are used: those with the lowest numbers.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Decides after a period with these loads of the workers in use.
    pub(crate) fn decide(&mut self, loads: &[Load]) -> Vec<Move> {
        let is_busy = |load: &Load| load.load >= BUSY && load.connections > 1;
        if loads.iter().any(is_busy) {
            self.calm = 0;
            return self.spread(loads, is_busy);
        }
        self.calm += 1;
        if self.calm < CALM_PERIODS {
            return Vec::new();
        }
        self.calm = 0;
        self.gather(loads)
    }

    fn spread(&mut self, loads: &[Load], is_busy: impl Fn(&Load) -> bool) -> Vec<Move> {
        let mut takers: Vec<(usize, f64)> =
            loads.iter().map(|load| load.load).enumerate().collect();
        takers.retain(|(_, load)| *load <= TAKES);
        takers.sort_by(|one, other| other.1.total_cmp(&one.1));
        let mut moves = Vec::new();
        for (from, _) in loads.iter().enumerate().filter(|(_, load)| is_busy(load)) {
            let to = match takers.pop() {
                Some((taker, _)) => taker,
                None if self.used < self.all => {
                    self.used += 1;
                    self.used - 1
                }
                None => break,
            };
            moves.push(Move { from, share: Share::Half, to: vec![to] });
        }
        moves
    }

    /// Uses only as many workers as the load needs.
    fn gather(&mut self, loads: &[Load]) -> Vec<Move> {
        let sum: f64 = loads.iter().map(|load| load.load).sum();
        let needed = ((sum / GATHERED).ceil() as usize).max(1);
        if needed >= self.used {
            return Vec::new();
        }
        let left = needed..self.used;
        self.used = needed;
        let mut to: Vec<usize> = (0..needed).collect();
        to.sort_by(|one, other| loads[*one].load.total_cmp(&loads[*other].load));
        left.map(|from| Move { from, share: Share::All, to: to.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(of: &[f64]) -> Vec<Load> {
        of.iter().map(|load| Load { load: *load, connections: 10 }).collect()
    }

    fn half(from: usize, to: usize) -> Move {
        Move { from, share: Share::Half, to: vec![to] }
    }

    #[test]
    fn a_busy_worker_hands_half_over_to_the_next_one() {
        let mut balance = Balance::new(4, 8);
        assert_eq!(balance.decide(&loads(&[0.74])), []);
        assert_eq!(balance.used(), 1);
        assert_eq!(balance.decide(&loads(&[0.75])), [half(0, 1)]);
        assert_eq!(balance.decide(&loads(&[0.9, 0.8])), [half(0, 2), half(1, 3)]);
        assert_eq!(balance.used(), 4);
        assert_eq!(balance.decide(&loads(&[0.9; 4])), []);
    }

    #[test]
    fn workers_with_little_to_do_take_connections_first() {
        let mut balance = Balance { all: 4, used: 3, calm: 0 };
        assert_eq!(balance.decide(&loads(&[0.3, 0.9, 0.1])), [half(1, 2)]);
        assert_eq!(balance.decide(&loads(&[0.3, 0.9, 0.9])), [half(1, 0), half(2, 3)]);
        assert_eq!(balance.used(), 4);
    }

    #[test]
    fn one_connection_cannot_be_divided() {
        let mut balance = Balance::new(2, 8);
        assert_eq!(balance.decide(&[Load { load: 1.0, connections: 1 }]), []);
        assert_eq!(balance.used(), 1);
    }

    #[test]
    fn no_more_workers_are_used_than_there_are_processors() {
        let mut balance = Balance::new(64, 2);
        assert_eq!(balance.decide(&loads(&[1.0])), [half(0, 1)]);
        assert_eq!(balance.decide(&loads(&[1.0, 1.0])), []);
        assert_eq!(balance.used(), 2);
    }

    #[test]
    fn few_workers_serve_a_low_load() {
        let mut balance = Balance { all: 8, used: 5, calm: 0 };
        let low = loads(&[0.2, 0.1, 0.3, 0.1, 0.2]);
        for _ in 1..CALM_PERIODS {
            assert_eq!(balance.decide(&low), []);
        }
        let all = |from| Move { from, share: Share::All, to: vec![1, 0] };
        assert_eq!(balance.decide(&low), [all(2), all(3), all(4)]);
        assert_eq!(balance.used(), 2);
    }

    #[test]
    fn a_burst_begins_the_calm_anew() {
        let mut balance = Balance { all: 2, used: 2, calm: 0 };
        for _ in 1..CALM_PERIODS {
            assert_eq!(balance.decide(&loads(&[0.1, 0.1])), []);
        }
        assert_eq!(balance.decide(&loads(&[0.8, 0.1])), [half(0, 1)]);
        assert_eq!(balance.decide(&loads(&[0.1, 0.1])), []);
        assert_eq!(balance.used(), 2);
    }

    #[test]
    fn what_was_spread_over_two_workers_is_not_gathered_while_it_is_too_much_for_one() {
        let mut balance = Balance { all: 8, used: 2, calm: 0 };
        for _ in 0..10 * CALM_PERIODS {
            assert_eq!(balance.decide(&loads(&[0.3, 0.3])), []);
        }
    }
}
