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
    let outside = (first * 8..bits.start).chain(bits.end..(last + 1) * 8);
    let (words, rest) = bytes[first..=last].as_chunks::<8>();
    let of_words: usize =
        words.iter().map(|word| u64::from_le_bytes(*word).count_ones() as usize).sum();
    let of_rest: usize = rest.iter().map(|byte| byte.count_ones() as usize).sum();
    of_words + of_rest - outside.filter(|place| bit(bytes, *place)).count()
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
    let find = |mut bits: Range<usize>| bits.find(|place| bit(bytes, *place) == wanted);
    let start = bits.start.next_multiple_of(8).min(bits.end);
    find(bits.start..start).or_else(|| {
        let whole = bytes.get(start / 8..bits.end / 8).unwrap_or_default();
        let boring = if wanted { 0 } else { u8::MAX };
        find(start + 8 * repeats(whole, boring)..bits.end)
    })
}

/// How often a byte is repeated at the beginning.
fn repeats(bytes: &[u8], byte: u8) -> usize {
    let (words, _) = bytes.as_chunks::<8>();
    let in_words = 8 * words.iter().take_while(|word| **word == [byte; 8]).count();
    in_words + bytes[in_words..].iter().take_while(|other| **other == byte).count()
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
    let Some((first, others)) = sources.split_first() else { return Vec::new() };
    let mut result = Vec::with_capacity(length);
    result.extend_from_slice(first);
    result.resize(length, 0);
    if operation == Operation::Not {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    for source in others {
        let (both, beyond) = result.split_at_mut(source.len());
        let pairs = both.iter_mut().zip(*source);
        match operation {
            Operation::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                beyond.fill(0);
            }
            Operation::Or => pairs.for_each(|(byte, other)| *byte |= other),
            Operation::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
            // It has one source.
            Operation::Not => {}
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_places_are_those_of_single_bits() {
        for bytes in [
            [&[0b1010_0000, 0xff, 0, 0b0000_0001][..], &[0; 18], &[7, 0]].concat(),
            [&[0xff; 17][..], &[0b1111_0111, 0xff, 0]].concat(),
        ] {
            check_ranges(&bytes);
        }
    }

    fn check_ranges(bytes: &[u8]) {
        let length = bytes.len() * 8;
        for start in 0..length {
            for end in start + 1..=length {
                let bits: Vec<bool> = (start..end).map(|place| bit(bytes, place)).collect();
                let ones = bits.iter().filter(|is_set| **is_set).count();
                assert_eq!(count_ones(bytes, start..end), ones, "{start}..{end}");
                for wanted in [false, true] {
                    let place = bits.iter().position(|is_set| *is_set == wanted);
                    let place = place.map(|place| place + start);
                    assert_eq!(first_bit(bytes, start..end, wanted), place, "{start}..{end}");
                }
            }
        }
    }

    #[test]
    fn shorter_strings_are_combined_as_if_zeros_followed() {
        let texts: [&[u8]; 4] = [b"\x0f\xf0\xaa", b"", b"\xff\x01", b"0123456789abcdefghi"];
        let sources = |number: usize| (0..3).map(move |place| texts[(number >> (2 * place)) & 3]);
        for number in 0..64 {
            let sources: Vec<&[u8]> = sources(number).collect();
            let length = sources.iter().map(|source| source.len()).max().unwrap();
            let byte = |source: &&[u8], place| source.get(place).copied().unwrap_or(0);
            let model = |sources: &[&[u8]], change: fn(u8, u8) -> u8| -> Vec<u8> {
                let bytes = |place| sources.iter().map(move |source| byte(source, place));
                (0..length).map(|place| bytes(place).reduce(change).unwrap()).collect()
            };
            assert_eq!(combine(Operation::And, &sources), model(&sources, |a, b| a & b));
            assert_eq!(combine(Operation::Or, &sources), model(&sources, |a, b| a | b));
            assert_eq!(combine(Operation::Xor, &sources), model(&sources, |a, b| a ^ b));
            let inverse: Vec<u8> = sources[0].iter().map(|byte| !byte).collect();
            assert_eq!(combine(Operation::Not, &sources[..1]), inverse);
        }
    }
}
