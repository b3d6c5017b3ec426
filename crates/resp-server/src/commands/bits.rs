//! Bits of strings: `SETBIT`, `GETBIT`, `BITCOUNT`, `BITPOS`, `BITOP`.
//!
//! Bit 0 is the highest of the first byte.

use std::ops::Range;

use zodium_keyspace::Text;
use zodium_resp::parse_integer;

use super::strings::read;
use super::substrings::{change, check_memory};
use crate::call::{Call, integer, is};
use crate::events::Class;
use crate::fail::{Fail, Outcome, SYNTAX};

const NO_OFFSET: Fail = Fail::fixed("ERR bit offset is not an integer or out of range");

/// The place of a bit. The string that has it must not be too long.
pub(super) fn offset(call: &Call, word: &[u8]) -> Result<usize, Fail> {
    let offset = parse_integer(word).and_then(|offset| usize::try_from(offset).ok());
    offset.filter(|offset| offset / 8 < call.server.settings.bulk_bytes_max()).ok_or(NO_OFFSET)
}

/// A bit of a string, which is as if zeros followed it.
pub(super) fn bit(bytes: &[u8], offset: usize) -> bool {
    bytes.get(offset / 8).is_some_and(|byte| byte >> (7 - offset % 8) & 1 == 1)
}

/// Sets a bit. The string must have it.
pub(super) fn set_bit(bytes: &mut [u8], offset: usize, is_set: bool) {
    let mask = 1 << (7 - offset % 8);
    if let Some(byte) = bytes.get_mut(offset / 8) {
        *byte = if is_set { *byte | mask } else { *byte & !mask };
    }
}

pub(super) fn setbit(call: &mut Call) -> Outcome {
    let key = call.word(1);
    let offset = offset(call, call.word(2))?;
    let is_set = match call.word(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(Fail::fixed("ERR bit is not an integer or out of range")),
    };
    let text = read(call.hold, key)?;
    let old = text.as_ref().is_some_and(|text| bit(text, offset));
    if old == is_set && text.is_some_and(|text| offset / 8 < text.len()) {
        call.reply.flag(old);
        return Ok(());
    }
    check_memory(offset / 8 + 1)?;
    change(call, key, |bytes| {
        bytes.resize(bytes.len().max(offset / 8 + 1), 0);
        set_bit(bytes, offset, is_set);
    })?;
    call.changed(key, Class::String, "setbit");
    call.reply.flag(old);
    Ok(())
}

pub(super) fn getbit(call: &mut Call) -> Outcome {
    let offset = offset(call, call.word(2))?;
    let is_set = read(call.hold, call.word(1))?.is_some_and(|text| bit(&text, offset));
    call.reply.flag(is_set);
    Ok(())
}

/// A range of bits, from options `start end BYTE|BIT`.
struct Places {
    start: Option<i64>,
    end: Option<i64>,
    counts_bits: bool,
}

impl Places {
    /// Those from an argument on.
    fn of(call: &Call, first: usize) -> Result<Places, Fail> {
        if call.len() > first + 3 {
            return Err(SYNTAX);
        }
        let start = (call.len() > first).then(|| integer(call.word(first))).transpose()?;
        let unit = call.word(first + 2);
        let counts_bits = is(unit, "bit");
        if call.len() > first + 2 && !counts_bits && !is(unit, "byte") {
            return Err(SYNTAX);
        }
        let end = (call.len() > first + 1).then(|| integer(call.word(first + 1))).transpose()?;
        Ok(Places { start, end, counts_bits })
    }

    /// The bits of a string of so many bytes; `None` if there is none.
    fn within(&self, bytes: usize) -> Option<Range<usize>> {
        let unit = if self.counts_bits { 1 } else { 8 };
        let total = i64::try_from(bytes * 8 / unit).ok()?;
        let absolute = |place: i64| if place < 0 { (place + total).max(0) } else { place };
        let start = absolute(self.start.unwrap_or(0));
        let end = absolute(self.end.unwrap_or(-1)).min(total - 1);
        if start > end {
            return None;
        }
        Some(usize::try_from(start).ok()? * unit..(usize::try_from(end).ok()? + 1) * unit)
    }
}

pub(super) fn bitcount(call: &mut Call) -> Outcome {
    let places = Places::of(call, 2)?;
    let is_empty = matches!((places.start, places.end),
        (Some(start), Some(end)) if start < 0 && end < 0 && start > end);
    let count = match read(call.hold, call.word(1))? {
        Some(text) if !is_empty => {
            places.within(text.len()).map_or(0, |range| count_ones(&text, range))
        }
        _ => 0,
    };
    call.reply.count(count);
    Ok(())
}

fn count_ones(bytes: &[u8], bits: Range<usize>) -> usize {
    let (first, last) = (bits.start / 8, (bits.end - 1) / 8);
    let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
    let outside = (first * 8..bits.start).chain(bits.end..(last + 1) * 8);
    ones(&bytes[first..=last]) - outside.filter(|place| bit(bytes, *place)).count()
}

pub(super) fn bitpos(call: &mut Call) -> Outcome {
    let wanted = match call.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(Fail::fixed("ERR The bit argument must be 1 or 0.")),
    };
    let places = Places::of(call, 3)?;
    let Some(text) = read(call.hold, call.word(1))? else {
        call.reply.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let range = places.within(text.len());
    let found = range.clone().and_then(|range| first_bit(&text, range, wanted));
    let answer = match found {
        Some(place) => i64::try_from(place).unwrap_or(i64::MAX),
        // Without an end, the string is as if zeros followed it.
        None if !wanted && places.end.is_none() && range.is_some() => {
            i64::try_from(text.len() * 8).unwrap_or(i64::MAX)
        }
        None => -1,
    };
    call.reply.integer(answer);
    Ok(())
}

fn first_bit(bytes: &[u8], bits: Range<usize>, wanted: bool) -> Option<usize> {
    let boring = if wanted { 0 } else { u8::MAX };
    let mut place = bits.start;
    while place < bits.end {
        if place.is_multiple_of(8) && bytes.get(place / 8) == Some(&boring) {
            place += 8;
        } else if bit(bytes, place) == wanted {
            return Some(place);
        } else {
            place += 1;
        }
    }
    None
}

/// An operation on several strings. Shorter ones are as if zeros followed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

pub(super) fn bitop(call: &mut Call) -> Outcome {
    let kinds = [
        ("and", Operation::And),
        ("or", Operation::Or),
        ("xor", Operation::Xor),
        ("not", Operation::Not),
    ];
    let operation = kinds.into_iter().find(|(name, _)| is(call.word(1), name));
    let (_, operation) = operation.ok_or(SYNTAX)?;
    if operation == Operation::Not && call.len() != 4 {
        return Err(Fail::fixed("ERR BITOP NOT must be called with a single source key."));
    }
    let target = call.word(2);
    let mut sources = Vec::new();
    for key in call.arguments.from(3).iter() {
        sources.push(read(call.hold, key)?.map(Text::bytes).unwrap_or_default());
    }
    let result = combine(operation, &sources);
    let length = result.len();
    if length > 0 {
        call.hold.put_string(target, &result, None);
        call.changed(target, Class::String, "set");
    } else {
        call.remove(target);
    }
    call.reply.count(length);
    Ok(())
}

fn combine(operation: Operation, sources: &[&[u8]]) -> Vec<u8> {
    let length = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let mut result = vec![0; length];
    for (number, source) in sources.iter().enumerate() {
        let padded = source.iter().copied().chain(std::iter::repeat(0));
        for (byte, other) in result.iter_mut().zip(padded) {
            *byte = match operation {
                Operation::Not => !other,
                _ if number == 0 => other,
                Operation::And => *byte & other,
                Operation::Or => *byte | other,
                Operation::Xor => *byte ^ other,
            };
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_places_are_those_of_single_bits() {
        let bytes = [0b1010_0000, 0xff, 0, 0b0000_0001];
        for start in 0..32 {
            for end in start + 1..=32 {
                let bits: Vec<bool> = (start..end).map(|place| bit(&bytes, place)).collect();
                let ones = bits.iter().filter(|is_set| **is_set).count();
                assert_eq!(count_ones(&bytes, start..end), ones, "{start}..{end}");
                for wanted in [false, true] {
                    let place = bits.iter().position(|is_set| *is_set == wanted);
                    let place = place.map(|place| place + start);
                    assert_eq!(first_bit(&bytes, start..end, wanted), place, "{start}..{end}");
                }
            }
        }
    }
}
