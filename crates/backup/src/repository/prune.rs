//! Removes restore points, and what only they need.

use rustc_hash::FxHashSet;

use super::opened::Repository;
use super::point::{Point, points};
use crate::BackupError;

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// Which restore points are kept. The newest one always is, and what a kept one continues.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeepRules {
    /// The newest ones.
    pub last: usize,
    /// The newest one of each of this many days that have one.
    pub daily: usize,
    /// All that are not older than this many seconds, or were made so long before the newest one.
    /// The clock may be ahead, and a storage that is not backed up any more keeps what it has.
    pub within_seconds: i64,
}

/// What was removed, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Points that are kept.
    pub kept: u64,
    /// Points that were removed.
    pub removed: u64,
    /// Bytes that are free again.
    pub freed_bytes: u64,
}

impl KeepRules {
    /// Those of the points that are kept at a time, by when they were made, the oldest first.
    fn kept(&self, points: &[i64], now: i64) -> Vec<bool> {
        let (mut days, mut last_day) = (0, None);
        let now = points.last().map_or(now, |newest| now.min(*newest));
        let mut kept: Vec<bool> = points
            .iter()
            .rev()
            .enumerate()
            .map(|(age, seconds)| {
                let day = seconds.div_euclid(SECONDS_PER_DAY);
                let is_first_of_day = last_day != Some(day);
                last_day = Some(day);
                days += usize::from(is_first_of_day);
                age < self.last.max(1)
                    || (is_first_of_day && days <= self.daily)
                    || now - seconds <= self.within_seconds && self.within_seconds > 0
            })
            .collect();
        kept.reverse();
        kept
    }
}

/// Removes the points that no rule keeps, and then all that no kept point needs. `dry_run`: removes
/// nothing.
///
/// # Errors
/// `Refused` while a backup is under way; `Damaged` if a kept point cannot be read: nothing is
/// removed then.
pub fn prune(
    repository: &Repository,
    rules: &KeepRules,
    now: i64,
    dry_run: bool,
) -> Result<Pruned, BackupError> {
    let claim = repository.claim()?;
    let points = points(repository)?;
    let made: Vec<_> = points.iter().map(|point| point.seconds).collect();
    let kept = with_bases(&points, rules.kept(&made, now));
    let store = repository.store();
    let mut needed = FxHashSet::default();
    let mut pruned = Pruned::default();
    for (point, _) in points.iter().zip(&kept).filter(|(_, is_kept)| **is_kept) {
        pruned.kept += 1;
        needed.extend(point.pages().cloned());
        for chunk in point.own_chunks(&store)? {
            needed.extend(chunk.objects().cloned());
        }
    }
    pruned.removed = points.len() as u64 - pruned.kept;
    let is_needed = |hash: &_| needed.contains(hash);
    if dry_run {
        pruned.freed_bytes = store.all_but(&is_needed)?.iter().map(|object| object.bytes).sum();
        return Ok(pruned);
    }
    // The newest first, so that none is left without the one that it continues.
    for (point, _) in points.iter().zip(&kept).rev().filter(|(_, is_kept)| !**is_kept) {
        claim.confirm()?;
        point.remove(repository)?;
    }
    claim.confirm()?;
    pruned.freed_bytes = store.retain(&*claim, &is_needed)?;
    Ok(pruned)
}

/// Keeps what kept points continue, too.
fn with_bases(points: &[Point], mut kept: Vec<bool>) -> Vec<bool> {
    for place in (1..points.len()).rev() {
        if kept[place] && !points[place].is_complete() {
            kept[place - 1] = true;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = SECONDS_PER_DAY;
    /// Two of the first day, one of the second, two of the fourth.
    const MADE: [i64; 5] = [10, 20, DAY + 5, 3 * DAY, 4 * DAY - 1];

    fn kept(rules: KeepRules) -> Vec<i64> {
        let kept = rules.kept(&MADE, 4 * DAY);
        MADE.into_iter().zip(kept).filter_map(|(made, is_kept)| is_kept.then_some(made)).collect()
    }

    #[test]
    fn the_newest_of_each_of_the_last_days_that_have_one_is_kept() {
        let daily = |daily| kept(KeepRules { daily, ..KeepRules::default() });
        assert_eq!(daily(1), [4 * DAY - 1]);
        assert_eq!(daily(2), [DAY + 5, 4 * DAY - 1]);
        assert_eq!(daily(3), [20, DAY + 5, 4 * DAY - 1]);
        assert_eq!(daily(9), daily(3));
    }

    #[test]
    fn a_point_is_kept_that_any_rule_keeps() {
        let rules = KeepRules { last: 2, daily: 2, within_seconds: 3 * DAY };
        assert_eq!(kept(KeepRules { last: 2, ..KeepRules::default() }), MADE[3..]);
        assert_eq!(kept(KeepRules { within_seconds: DAY, ..KeepRules::default() }), MADE[3..]);
        assert_eq!(kept(rules), MADE[2..]);
    }

    #[test]
    fn a_clock_that_is_ahead_removes_nothing_of_the_last_days() {
        let rules = KeepRules { within_seconds: DAY, ..KeepRules::default() };
        assert_eq!(rules.kept(&MADE, 400 * DAY), rules.kept(&MADE, 4 * DAY));
        // It was ahead when the newest one was made.
        assert_eq!(rules.kept(&[10, 20, 400 * DAY], 30), [true; 3]);
    }
}
