//! Decides where chunks end: after a transaction, as its tid and its length say.

use zodium_types::Tid;

/// Mean bytes of a chunk.
const TARGET_BYTES: u64 = 256 << 10;
/// Bytes that end a chunk, whatever the tid says.
pub(super) const BYTES_MAX: usize = 8 << 20;

/// Whether a chunk of `chunk_bytes` ends with this transaction, of `bytes`.
///
/// The same transactions give the same ends, whatever comes before them; but for chunks of the
/// largest length.
pub(super) fn is_end(tid: Tid, bytes: usize, chunk_bytes: usize) -> bool {
    let chance = (bytes as u64).saturating_mul(u64::MAX / TARGET_BYTES);
    mixed(tid.0) < chance || chunk_bytes >= BYTES_MAX
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
        let ends = (0..100_000).filter(|tid| is_end(Tid(*tid << 20), 1 << 10, 0)).count();
        let expected = 100_000 * (1 << 10) / TARGET_BYTES as usize;
        assert!((expected * 8 / 10..expected * 12 / 10).contains(&ends), "{ends}");
        assert!(is_end(Tid(1), 1, BYTES_MAX));
    }
}
