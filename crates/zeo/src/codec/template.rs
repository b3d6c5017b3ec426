//! Templates of messages that differ only in oids and tids.
//!
//! Filling in a template is one copy. Encoding the message part by part was half of the cost of
//! loading a small object.

/// Stands for eight bytes to fill in.
const HOLE: &[u8; 8] = b"........";

/// A message, or a part of one, with holes of eight bytes.
pub(super) struct Template<const LENGTH: usize, const HOLES: usize> {
    bytes: [u8; LENGTH],
    holes: [usize; HOLES],
}

impl<const LENGTH: usize, const HOLES: usize> Template<LENGTH, HOLES> {
    /// Creates a template from bytes in which each hole is eight dots.
    pub(super) const fn new(bytes: &[u8; LENGTH]) -> Template<LENGTH, HOLES> {
        let mut holes = [0; HOLES];
        let (mut found, mut index) = (0, 0);
        while index + HOLE.len() <= LENGTH {
            if is_hole(bytes, index) {
                assert!(found < HOLES, "more holes than announced");
                holes[found] = index;
                found += 1;
                index += HOLE.len();
            } else {
                index += 1;
            }
        }
        assert!(found == HOLES, "fewer holes than announced");
        Template { bytes: *bytes, holes }
    }

    /// The bytes with these numbers in the holes, big-endian.
    #[inline]
    pub(super) fn filled(&self, values: [u64; HOLES]) -> [u8; LENGTH] {
        let mut bytes = self.bytes;
        for (hole, value) in self.holes.iter().zip(values) {
            if let Some(place) = bytes[*hole..].first_chunk_mut() {
                *place = value.to_be_bytes();
            }
        }
        bytes
    }

    /// The number in hole `hole`, without looking at the bytes around it.
    #[inline]
    pub(super) fn value(&self, hole: usize, bytes: &[u8; LENGTH]) -> u64 {
        bytes[self.holes[hole]..].first_chunk().map_or(0, |chunk| u64::from_be_bytes(*chunk))
    }
}

const fn is_hole(bytes: &[u8], start: usize) -> bool {
    let mut index = 0;
    while index < HOLE.len() {
        if bytes[start + index] != HOLE[index] {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_from_where_they_were_filled_in() {
        const TEMPLATE: Template<22, 2> = Template::new(b"ab........c........def");
        let filled = TEMPLATE.filled([1, u64::MAX - 1]);
        assert_eq!(&filled, b"ab\0\0\0\0\0\0\0\x01c\xff\xff\xff\xff\xff\xff\xff\xfedef");
        assert_eq!([0, 1].map(|hole| TEMPLATE.value(hole, &filled)), [1, u64::MAX - 1]);
    }
}
