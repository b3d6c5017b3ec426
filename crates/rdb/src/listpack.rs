//! Listpacks: strings and integers one after the other, in the values of newer versions.

use crate::RdbError;
use crate::intset::integer;

/// Bytes before the first element: those of all, and their number.
const HEAD_BYTES: usize = 6;
/// Behind the last element.
pub(crate) const END: u8 = 0xff;

/// An element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Element<'a> {
    Bytes(&'a [u8]),
    Integer(i64),
}

impl Element<'_> {
    /// Its bytes; an integer as decimal digits.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Element::Bytes(bytes) => bytes.to_vec(),
            Element::Integer(number) => number.to_string().into_bytes(),
        }
    }

    /// As an integer.
    pub(crate) fn integer(&self) -> Option<i64> {
        match self {
            Element::Integer(number) => Some(*number),
            Element::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        }
    }
}

/// The elements of a listpack.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<Element<'_>>, RdbError> {
    elements(bytes).ok_or(RdbError::Damaged("a listpack"))
}

fn elements(bytes: &[u8]) -> Option<Vec<Element<'_>>> {
    each_entry(bytes, HEAD_BYTES, |rest| {
        let (element, length) = element(rest)?;
        // The length stands behind the element too, to be read backwards.
        Some((element, length + back_length(length)))
    })
}

/// The elements of a list that begins with its own length. `entry` reads the first element of the
/// rest, with the bytes that it takes.
pub(crate) fn each_entry<'a>(
    bytes: &'a [u8],
    head_bytes: usize,
    entry: impl Fn(&'a [u8]) -> Option<(Element<'a>, usize)>,
) -> Option<Vec<Element<'a>>> {
    let total = u32::from_le_bytes(*bytes.first_chunk()?);
    if total as usize != bytes.len() {
        return None;
    }
    let mut rest = bytes.get(head_bytes..)?;
    let mut found = Vec::new();
    while rest != [END] {
        let (element, length) = entry(rest)?;
        found.push(element);
        rest = rest.get(length..)?;
    }
    Some(found)
}

/// The first element, and its length.
fn element(bytes: &[u8]) -> Option<(Element<'_>, usize)> {
    let first = *bytes.first()?;
    let text = |start: usize, count: usize| {
        let end = start.checked_add(count)?;
        Some((Element::Bytes(bytes.get(start..end)?), end))
    };
    let number =
        |width: usize| Some((Element::Integer(integer(bytes.get(1..1 + width)?)), 1 + width));
    match first {
        0..=0x7f => Some((Element::Integer(first.into()), 1)),
        0x80..=0xbf => text(1, usize::from(first & 0x3f)),
        0xc0..=0xdf => {
            let raw = i64::from(first & 0x1f) << 8 | i64::from(*bytes.get(1)?);
            // 13 bits with a sign.
            Some((Element::Integer(if raw >= 1 << 12 { raw - (1 << 13) } else { raw }), 2))
        }
        0xe0..=0xef => text(2, usize::from(first & 0xf) << 8 | usize::from(*bytes.get(1)?)),
        0xf0 => {
            let count = u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?);
            text(5, usize::try_from(count).ok()?)
        }
        0xf1 => number(2),
        0xf2 => number(3),
        0xf3 => number(4),
        0xf4 => number(8),
        _ => None,
    }
}

/// Bytes of the length behind an element.
fn back_length(length: usize) -> usize {
    match length {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        2_097_152..=268_435_455 => 4,
        _ => 5,
    }
}

/// A listpack that is being written.
pub(crate) struct ListpackWriter {
    bytes: Vec<u8>,
    count: usize,
}

impl ListpackWriter {
    pub(crate) fn new() -> ListpackWriter {
        ListpackWriter { bytes: vec![0; HEAD_BYTES], count: 0 }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let start = self.bytes.len();
        let count = bytes.len();
        match count {
            0..=63 => self.bytes.push(0x80 | count as u8),
            64..=4095 => self.bytes.extend([0xe0 | (count >> 8) as u8, count as u8]),
            _ => {
                self.bytes.push(0xf0);
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                self.bytes.extend_from_slice(&count.to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(bytes);
        self.end_element(start);
    }

    pub(crate) fn integer(&mut self, number: i64) {
        let start = self.bytes.len();
        if (0..=127).contains(&number) {
            self.bytes.push(number as u8);
        } else {
            self.bytes.push(0xf4);
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.end_element(start);
    }

    fn end_element(&mut self, start: usize) {
        let length = self.bytes.len() - start;
        let count = back_length(length);
        // Seven bits a byte, the highest first; all but the first one have a mark.
        for place in (0..count).rev() {
            let part = ((length >> (7 * place)) & 0x7f) as u8;
            let mark = if place + 1 == count { 0 } else { 0x80 };
            self.bytes.push(part | mark);
        }
        self.count += 1;
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let total = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        // The largest number means that they are to be counted.
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        self.bytes[..4].copy_from_slice(&total.to_le_bytes());
        self.bytes[4..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let texts: Vec<Vec<u8>> =
            [0, 1, 63, 64, 125, 4095, 4096, 20_000].map(|length| vec![b'x'; length]).to_vec();
        let numbers = [0, 1, 127, 128, -1, -4096, 4095, i64::MAX, i64::MIN];
        let mut writer = ListpackWriter::new();
        texts.iter().for_each(|text| writer.bytes(text));
        numbers.iter().for_each(|number| writer.integer(*number));
        let bytes = writer.finish();
        let mut expected: Vec<Element> = texts.iter().map(|text| Element::Bytes(text)).collect();
        expected.extend(numbers.map(Element::Integer));
        assert_eq!(read(&bytes).unwrap(), expected);
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn short_integers_of_other_writers_are_read() {
        // 13 bits: -1, 4095, -4096.
        let body = [0xdf, 0xff, 2, 0xcf, 0xff, 2, 0xd0, 0, 2, 0xff];
        let mut bytes = vec![16, 0, 0, 0, 3, 0];
        bytes.extend(body);
        let expected = [-1, 4095, -4096].map(Element::Integer);
        assert_eq!(read(&bytes).unwrap(), expected);
    }
}
