//! Whether a side file is that of the log beside it.
//!
//! A backup may have been put back, or a stock server may have packed. Then the two part at some
//! position, behind which no entry fits any more. Damage looks different: what is around it fits.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::DiskFile;

use super::entry::Part;
use super::side_file::SideFile;
use super::sums::sum_at;
use crate::check::Walk;

/// Entries at the end that are looked at. Where at least half of them fit, all are believed.
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
    if fitting * 2 >= tail.end - tail.start {
        return count;
    }
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
    // Where they part the log has another transaction; damage has none, or the same.
    let is_other = |number: &u64| {
        let entry = side.entry(*number).filter(|entry| entry.part == Part::Frame);
        entry.is_some_and(|entry| {
            !fits(*number)
                && Walk::starting_at(path, data, length, entry.position)
                    .step()
                    .is_some_and(|piece| piece.start == entry.position && piece.is_whole())
        })
    };
    (low.saturating_sub(TAIL_ENTRIES)..count).find(is_other).unwrap_or(count)
}
