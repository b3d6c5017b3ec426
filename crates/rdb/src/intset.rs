//! Sets of integers, ascending.

use crate::RdbError;

/// The members of a set.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<i64>, RdbError> {
    let damaged = RdbError::Damaged("a set of integers");
    let Some((head, rest)) = bytes.split_first_chunk::<8>() else { return Err(damaged) };
    let [w0, w1, w2, w3, c0, c1, c2, c3] = *head;
    let width = u32::from_le_bytes([w0, w1, w2, w3]) as usize;
    let count = u32::from_le_bytes([c0, c1, c2, c3]) as usize;
    if ![2, 4, 8].contains(&width) || rest.len() != count.saturating_mul(width) {
        return Err(damaged);
    }
    Ok(rest.chunks_exact(width).map(integer).collect())
}

/// A signed integer of up to eight bytes, the lowest first.
pub(crate) fn integer(bytes: &[u8]) -> i64 {
    let sign = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
    let mut all = [sign; 8];
    for (to, from) in all.iter_mut().zip(bytes) {
        *to = *from;
    }
    i64::from_le_bytes(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_all_widths_are_read() {
        assert_eq!(read(&[2, 0, 0, 0, 2, 0, 0, 0, 0xff, 0xff, 5, 0]).unwrap(), [-1, 5]);
        assert!(read(&[2, 0, 0, 0, 2, 0, 0, 0, 0xff, 0xff, 5]).is_err());
        assert_eq!(integer(&[0, 0, 0x80]), -8_388_608);
    }
}
