//! The data of committed objects, made so that any revision can be checked.
//!
//! The data are a pickle, since servers decode conflicting records: a persistent object whose state
//! is bytes. These hold the oid, a count, random bytes, and a CRC-32C over all of them. The count
//! tells revisions apart.

use anyhow::{Context, Result, ensure};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use zodium_types::Oid;

const CLASS: &[u8] = b"\x80\x03cpersistent.mapping\nPersistentMapping\nq\0.\x80\x03B";
const END: &[u8] = b".";
/// Length of the fixed fields: a length, an oid, a count, and a checksum after the random bytes.
const FIXED_BYTES: usize = 4 + 8 + 8 + 4;
/// Size of the pool of random bytes.
const POOL_BYTES: usize = 1 << 20;

/// Generates data.
#[derive(Debug)]
pub(crate) struct Content {
    pool: Vec<u8>,
    object_bytes: usize,
}

impl Content {
    pub(crate) fn new(object_bytes: u32) -> Content {
        let object_bytes = object_bytes as usize;
        let mut pool = vec![0; POOL_BYTES + object_bytes];
        Xoshiro256PlusPlus::seed_from_u64(1).fill_bytes(&mut pool);
        Content { pool, object_bytes }
    }

    /// The data of an object's revision with this count.
    pub(crate) fn data(&self, oid: Oid, count: u64) -> Vec<u8> {
        let random = self.object_bytes.saturating_sub(CLASS.len() + END.len() + FIXED_BYTES);
        let from = (oid.0.wrapping_mul(31).wrapping_add(count.wrapping_mul(97))) as usize;
        let from = from % POOL_BYTES;
        let mut state = Vec::with_capacity(random + FIXED_BYTES);
        state.extend_from_slice(&oid.to_bytes());
        state.extend_from_slice(&count.to_be_bytes());
        state.extend_from_slice(self.pool.get(from..from + random).unwrap_or_default());
        state.extend_from_slice(&crc32c::crc32c(&state).to_be_bytes());
        let length = u32::try_from(state.len()).unwrap_or(u32::MAX);
        [CLASS, &length.to_le_bytes(), &state, END].concat()
    }

    /// The position of the oid in the data of an object.
    pub(crate) fn oid_range(&self) -> std::ops::Range<usize> {
        CLASS.len() + 4..CLASS.len() + 12
    }

    /// Checks every byte of an object's data, and returns its count.
    pub(crate) fn check(&self, oid: Oid, data: &[u8]) -> Result<u64> {
        let count = data.get(CLASS.len() + 12..).and_then(|rest| rest.first_chunk());
        let count = u64::from_be_bytes(*count.context("data are shorter than stored")?);
        ensure!(data == self.data(oid, count), "the data of object {oid} are not what was stored");
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_is_noticed() {
        let content = Content::new(200);
        let data = content.data(Oid(7), 3);
        assert_eq!(data.len(), 200);
        assert_eq!(content.check(Oid(7), &data).unwrap(), 3);
        assert!(content.check(Oid(8), &data).is_err());
        for index in 0..data.len() {
            let mut wrong = data.clone();
            wrong[index] ^= 1;
            assert!(content.check(Oid(7), &wrong).is_err(), "{index}");
        }
        assert!(content.check(Oid(7), &data[..20]).is_err());
    }
}
