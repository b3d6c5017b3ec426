//! Whether a side file is that of the log beside it.
//!
//! A backup may have been put back, or a stock server may have packed. Then the two part at some
//! position, behind which no entry fits any more. Damage looks different: what is around it fits.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::DiskFile;

use super::entry::Part;
use super::repair;
use super::side_file::SideFile;
use super::sums::sum_at;
use crate::check::Walk;

/// Entries that are looked at together.
const TAIL_ENTRIES: u64 = 64;
/// Entries that must fit together to show that the side file is right up to there.
const WITNESSES: u64 = 8;
/// Places at which they are looked for, one behind the other, since one may be damaged.
const ATTEMPTS: u64 = 4;

/// How many of the first `count` entries are of this log.
pub(super) fn entries_that_belong(
    side: &SideFile,
    path: &Path,
    data: &Arc<dyn DiskFile>,
    length: u64,
    count: u64,
) -> u64 {
    let fits = |number: u64| {
        // An entry that is none says nothing.
        side.entry(number).is_none_or(|entry| {
            sum_at(data.as_ref(), entry.position, length, entry.part) == Some(entry.sum)
        })
    };
    let tail = count.saturating_sub(TAIL_ENTRIES)..count;
    let fitting = tail.clone().filter(|number| fits(*number)).count() as u64;
    let is_mostly_right = fitting * 2 >= tail.end - tail.start;
    if count == 0 || is_mostly_right && fits(count - 1) {
        return count;
    }
    let first = if is_mostly_right { tail.start } else { last_vouched(count, &fits) };
    // Where they part the log has another transaction, and no later entry fits. Damage has none
    // there, or the same one with a wrong bit, or is followed by what fits.
    let is_other = |number: &u64| {
        let entry = side.entry(*number).filter(|entry| entry.part == Part::Frame);
        let later = *number + 1..(*number + 1 + TAIL_ENTRIES).min(count);
        entry.is_some_and(|entry| {
            !fits(*number)
                && is_whole_transaction(path, data, length, entry.position)
                && !repair::is_one_bit_off(data.as_ref(), &entry, length)
                && later.clone().filter(|n| fits(*n)).count() as u64 * 4 <= later.end - later.start
        })
    };
    (first..count).find(is_other).unwrap_or(count)
}

/// Near the last place where entries fit.
fn last_vouched(count: u64, fits: &impl Fn(u64) -> bool) -> u64 {
    let vouched = |start: u64| {
        (0..ATTEMPTS).any(|attempt| {
            let start = start + attempt * WITNESSES;
            start + WITNESSES <= count && (start..start + WITNESSES).all(fits)
        })
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if vouched(middle) { low = middle + 1 } else { high = middle }
    }
    low.saturating_sub(TAIL_ENTRIES)
}

fn is_whole_transaction(path: &Path, data: &Arc<dyn DiskFile>, length: u64, position: u64) -> bool {
    let piece = Walk::starting_at(path, data, length, position).step();
    piece.is_some_and(|piece| piece.is_whole())
}
