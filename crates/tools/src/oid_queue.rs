//! A queue of oids for a search through all objects of a database.
//!
//! Key decision: an oid is stored as its distance from the one before. Objects refer to objects
//! that were made with them, so that takes one or two bytes for most.

use std::collections::VecDeque;

use zodium_types::Oid;

/// Bits of a number in each byte; the eighth says that more bytes follow.
const BITS: u32 = 7;
const MORE: u8 = 1 << BITS;

/// First in, first out.
#[derive(Debug, Default)]
pub(crate) struct OidQueue {
    bytes: VecDeque<u8>,
    pushed: u64,
    popped: u64,
}

impl OidQueue {
    pub(crate) fn push(&mut self, oid: Oid) {
        let distance = oid.0.wrapping_sub(self.pushed).cast_signed();
        self.pushed = oid.0;
        // Distances of both signs are small numbers.
        let mut rest = (distance << 1 ^ distance >> 63).cast_unsigned();
        while rest >= u64::from(MORE) {
            self.bytes.push_back(rest as u8 | MORE);
            rest >>= BITS;
        }
        self.bytes.push_back(rest as u8);
    }
}

/// Takes the oids that were pushed first.
impl Iterator for OidQueue {
    type Item = Oid;

    fn next(&mut self) -> Option<Oid> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.bytes.pop_front()?;
            number |= u64::from(byte & !MORE) << shift;
            shift += BITS;
            if byte < MORE {
                break;
            }
        }
        let distance = number >> 1 ^ (number & 1).wrapping_neg();
        self.popped = self.popped.wrapping_add(distance);
        Some(Oid(self.popped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_queue_of_any_oids() {
        let (mut queue, mut model) = (OidQueue::default(), VecDeque::new());
        let mut random = 1_u64;
        for step in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let oid = match step % 4 {
                0 => u64::MAX - (random >> 60),
                1 => random,
                2 => random >> 50,
                _ => step,
            };
            queue.push(Oid(oid));
            model.push_back(Oid(oid));
            if random >> 63 == 1 {
                assert_eq!(queue.next(), model.pop_front());
            }
        }
        while let Some(oid) = model.pop_front() {
            assert_eq!(queue.next(), Some(oid));
        }
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn near_oids_take_a_byte_each() {
        let mut queue = OidQueue::default();
        (1000..2000).for_each(|oid| queue.push(Oid(oid)));
        assert_eq!(queue.bytes.len(), 1001);
    }
}
