//! Decides where chunks end: after a transaction, and in long ones after a record, as its tid, its
//! oid and its length say.
//!
//! Key decision: no end depends on where the chunk began, so what a pack leaves is cut as before.
//! A large record is a chunk of its own: it is found again by its content, whatever is left
//! around it.

use zodium_types::{Oid, Tid};

/// Mean bytes of a chunk.
const TARGET_BYTES: u64 = 256 << 10;
/// Bytes that end a chunk, whatever the tid says.
const BYTES_MAX: usize = 8 << 20;
/// Bytes of a transaction before its records may end a chunk.
const HEAD_BYTES: usize = 512 << 10;
/// Bytes of a record that is a chunk of its own.
const LARGE_RECORD_BYTES: usize = 1 << 20;

/// Whether a chunk of `chunk_bytes` ends with this transaction, of `bytes`.
///
/// The same transactions give the same ends, whatever comes before them; but for chunks of the
/// largest length.
pub(super) fn ends_with_transaction(tid: Tid, bytes: usize, chunk_bytes: usize) -> bool {
    is_drawn(tid.0, bytes) || chunk_bytes >= BYTES_MAX
}

/// Whether a chunk of `chunk_bytes` ends with this record, of `bytes`, that begins `before` bytes
/// behind the start of its transaction.
pub(super) fn ends_with_record(
    (tid, oid): (Tid, Oid),
    (before, bytes): (usize, usize),
    chunk_bytes: usize,
) -> bool {
    let is_cut = || is_drawn(tid.0 ^ mixed(oid.0), bytes) || chunk_bytes >= BYTES_MAX;
    is_large(bytes) || before >= HEAD_BYTES && is_cut()
}

/// Whether a record of `bytes` is a chunk of its own.
pub(super) fn is_large(bytes: usize) -> bool {
    bytes >= LARGE_RECORD_BYTES
}

/// Is true for a part of all numbers, so that an end comes each 256 KiB.
fn is_drawn(number: u64, bytes: usize) -> bool {
    mixed(number) < (bytes as u64).saturating_mul(u64::MAX / TARGET_BYTES)
}

/// All bits of the result depend on all bits of the number (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_the_mean_length() {
        let is_expected = |ends: usize| {
            let expected = 100_000 * (1 << 10) / TARGET_BYTES as usize;
            assert!((expected * 8 / 10..expected * 12 / 10).contains(&ends), "{ends}");
        };
        let tids = (0..100_000).map(|tid| Tid(tid << 20));
        is_expected(tids.filter(|tid| ends_with_transaction(*tid, 1 << 10, 0)).count());
        let record = |oid| ends_with_record((Tid(7), Oid(oid)), (HEAD_BYTES, 1 << 10), 0);
        is_expected((0..100_000).filter(|oid| record(*oid)).count());
    }

    #[test]
    fn the_longest_chunks_and_large_records_end_in_any_case() {
        let record =
            |before, bytes, chunk| ends_with_record((Tid(1), Oid(1)), (before, bytes), chunk);
        assert!(ends_with_transaction(Tid(1), 1, BYTES_MAX));
        assert!(record(HEAD_BYTES, 1, BYTES_MAX) && record(0, LARGE_RECORD_BYTES, 0));
        // A short transaction stays in one piece.
        assert!(!record(HEAD_BYTES - 1, LARGE_RECORD_BYTES - 1, BYTES_MAX));
    }
}
