//! Places in strings, lists and sorted sets, which may be counted from the end.

use std::ops::Range;

/// The places from `start` to `end`, both included, of so many; `None` if there are none. Negative
/// ones count from the end, -1 is the last.
pub(super) fn range(start: i64, end: i64, length: usize) -> Option<Range<usize>> {
    let count = i64::try_from(length).unwrap_or(i64::MAX);
    let from_end = |place: i64| if place < 0 { count.saturating_add(place).max(0) } else { place };
    if end < 0 && count.saturating_add(end) < 0 {
        return None;
    }
    let (start, end) = (from_end(start), from_end(end).min(count - 1));
    if start > end || start >= count {
        return None;
    }
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()? + 1)
}

/// A place of so many; `None` if it is not one.
pub(super) fn place(place: i64, length: usize) -> Option<usize> {
    let count = i64::try_from(length).unwrap_or(i64::MAX);
    let place = if place < 0 { count.checked_add(place)? } else { place };
    usize::try_from(place).ok().filter(|place| *place < length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_from_both_ends() {
        assert_eq!(range(0, -1, 3), Some(0..3));
        assert_eq!(range(-2, 10, 3), Some(1..3));
        assert_eq!(range(2, 1, 3), None);
        assert_eq!(range(3, 5, 3), None);
        assert_eq!(range(0, -4, 3), None);
        assert_eq!(range(-100, 0, 3), Some(0..1));
        assert_eq!(range(0, -1, 0), None);
        assert_eq!((place(-1, 3), place(-4, 3), place(3, 3)), (Some(2), None, None));
    }
}
