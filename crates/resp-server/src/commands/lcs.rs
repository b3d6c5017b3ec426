//! `LCS`: the longest common subsequence of two strings.

use super::strings::read;
use crate::call::{Call, Options, integer, is};
use crate::fail::{Fail, Outcome, SYNTAX};

/// What is asked for.
#[derive(Default)]
struct Wanted {
    only_length: bool,
    places: bool,
    least_length: usize,
    with_lengths: bool,
}

impl Wanted {
    fn of(call: &Call) -> Result<Wanted, Fail> {
        let mut wanted = Wanted::default();
        let mut options = Options::from(call.arguments, 3);
        while let Some(word) = options.next() {
            if is(word, "idx") {
                wanted.places = true;
            } else if is(word, "len") {
                wanted.only_length = true;
            } else if is(word, "withmatchlen") {
                wanted.with_lengths = true;
            } else if is(word, "minmatchlen") && options.left() > 0 {
                let least = integer(options.value()?)?;
                wanted.least_length = usize::try_from(least).unwrap_or(0);
            } else {
                return Err(SYNTAX);
            }
        }
        match wanted.places && wanted.only_length {
            true => Err(Fail::fixed(
                "ERR If you want both the length and indexes, please just use IDX.",
            )),
            false => Ok(wanted),
        }
    }
}

/// Equal bytes of both strings: where they begin, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    one: usize,
    other: usize,
    length: usize,
}

pub(super) fn lcs(call: &mut Call) -> Outcome {
    let string = |place: usize| {
        let found = read(call.hold, call.word(place));
        found
            .map(|text| text.map_or(&[][..], |text| text.bytes()))
            .map_err(|_| Fail::fixed("ERR The specified keys must contain string values"))
    };
    let (one, other) = (string(1)?, string(2)?);
    let wanted = Wanted::of(call)?;
    let cells = (one.len() + 1).checked_mul(other.len() + 1);
    let bytes = cells.and_then(|cells| cells.checked_mul(size_of::<u32>()));
    if bytes.is_none_or(|bytes| bytes > call.server.settings.bulk_bytes_max()) {
        return Err(Fail::fixed(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    let matches = matches(one, other);
    let length: usize = matches.iter().map(|found| found.length).sum();
    if wanted.only_length {
        call.reply.count(length);
    } else if wanted.places {
        answer_places(call, &wanted, &matches, length);
    } else {
        let parts = matches.iter().rev().map(|found| &one[found.one..found.one + found.length]);
        call.reply.bulk(&parts.collect::<Vec<_>>().concat());
    }
    Ok(())
}

/// The matches of a longest common subsequence, from the last to the first.
fn matches(one: &[u8], other: &[u8]) -> Vec<Match> {
    // The length for each pair of beginnings.
    let width = other.len() + 1;
    let mut lengths = vec![0_u32; (one.len() + 1) * width];
    for (row, byte) in one.iter().enumerate() {
        for (column, counterpart) in other.iter().enumerate() {
            let above = row * width + column;
            let here = above + width + 1;
            lengths[here] = match byte == counterpart {
                true => lengths[above] + 1,
                false => lengths[above + 1].max(lengths[here - 1]),
            };
        }
    }
    let mut found: Vec<Match> = Vec::new();
    let (mut row, mut column) = (one.len(), other.len());
    while row > 0 && column > 0 {
        if one[row - 1] == other[column - 1] {
            (row, column) = (row - 1, column - 1);
            match found.last_mut() {
                Some(last) if last.one == row + 1 && last.other == column + 1 => {
                    *last = Match { one: row, other: column, length: last.length + 1 };
                }
                _ => found.push(Match { one: row, other: column, length: 1 }),
            }
        } else if lengths[(row - 1) * width + column] > lengths[row * width + column - 1] {
            row -= 1;
        } else {
            column -= 1;
        }
    }
    found
}

fn answer_places(call: &mut Call, wanted: &Wanted, matches: &[Match], length: usize) {
    let shown: Vec<&Match> =
        matches.iter().filter(|found| found.length >= wanted.least_length).collect();
    call.reply.map(2);
    call.reply.text("matches");
    call.reply.array(shown.len());
    for found in shown {
        call.reply.array(if wanted.with_lengths { 3 } else { 2 });
        for start in [found.one, found.other] {
            call.reply.array(2);
            call.reply.count(start);
            call.reply.count(start + found.length - 1);
        }
        if wanted.with_lengths {
            call.reply.count(found.length);
        }
    }
    call.reply.text("len");
    call.reply.count(length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_subsequence_is_found() {
        let text = |one: &str, other: &str| {
            let found = matches(one.as_bytes(), other.as_bytes());
            let parts = found.iter().rev().map(|found| &one[found.one..found.one + found.length]);
            parts.collect::<String>()
        };
        assert_eq!(text("ohmytext", "mynewtext"), "mytext");
        assert_eq!(text("abc", "xyz"), "");
        assert_eq!(text("", "xyz"), "");
        assert_eq!(text("aaaa", "aa"), "aa");
    }
}
