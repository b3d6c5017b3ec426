//! Ziplists: what listpacks were in older versions.

use crate::RdbError;
use crate::intset::integer;
use crate::listpack::{Element, each_entry};

/// Bytes before the first element.
const HEAD_BYTES: usize = 10;

/// The elements of a ziplist.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<Element<'_>>, RdbError> {
    elements(bytes).ok_or(RdbError::Damaged("a ziplist"))
}

fn elements(bytes: &[u8]) -> Option<Vec<Element<'_>>> {
    each_entry(bytes, HEAD_BYTES, |rest| {
        // First the length of the element before.
        let skipped = if *rest.first()? == 0xfe { 5 } else { 1 };
        let (element, length) = element(rest.get(skipped..)?)?;
        Some((element, skipped + length))
    })
}

fn element(bytes: &[u8]) -> Option<(Element<'_>, usize)> {
    let first = *bytes.first()?;
    let text = |start: usize, count: usize| {
        let end = start.checked_add(count)?;
        Some((Element::Bytes(bytes.get(start..end)?), end))
    };
    let number =
        |width: usize| Some((Element::Integer(integer(bytes.get(1..1 + width)?)), 1 + width));
    match first {
        0..=0x3f => text(1, usize::from(first)),
        0x40..=0x7f => text(2, usize::from(first & 0x3f) << 8 | usize::from(*bytes.get(1)?)),
        0x80..=0xbf => {
            let count = u32::from_be_bytes(*bytes.get(1..)?.first_chunk()?);
            text(5, usize::try_from(count).ok()?)
        }
        0xc0 => number(2),
        0xd0 => number(4),
        0xe0 => number(8),
        0xf0 => number(3),
        0xfe => number(1),
        0xf1..=0xfd => Some((Element::Integer(i64::from(first & 0xf) - 1), 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listpack::END;

    #[test]
    fn all_kinds_of_elements_are_read() {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes.extend([0, 2, b'a', b'b']);
        bytes.extend([4, 0x40, 1, b'c']);
        bytes.extend([0xfe, 4, 0, 0, 0, 0x80, 0, 0, 0, 1, b'd']);
        bytes.extend([11, 0xf1, 2, 0xfd, 2, 0xfe, 0xff, 3, 0xc0, 0, 0x80, 4, 0xf0, 1, 0, 0]);
        bytes.push(END);
        let total = bytes.len() as u32;
        bytes[..4].copy_from_slice(&total.to_le_bytes());
        let mut expected: Vec<Element> =
            [&b"ab"[..], b"c", b"d"].into_iter().map(Element::Bytes).collect();
        expected.extend([0, 12, -1, -32_768, 1].map(Element::Integer));
        assert_eq!(read(&bytes).unwrap(), expected);
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err());
        }
    }
}
