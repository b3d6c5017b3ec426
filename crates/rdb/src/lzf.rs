//! LZF: the compression of long strings.

/// The bytes that were compressed; `None` if they are not `whole` many, or make no sense.
pub(crate) fn decompress(packed: &[u8], whole: u64) -> Option<Vec<u8>> {
    /// One byte stands for at most so many: a copy of 264 has three.
    const GROWTH_MAX: u64 = 88;
    if whole > GROWTH_MAX.saturating_mul(packed.len() as u64) {
        return None;
    }
    let whole = usize::try_from(whole).ok()?;
    let mut out = Vec::with_capacity(whole);
    let mut bytes = packed.iter();
    while let Some(control) = bytes.next() {
        let control = usize::from(*control);
        if control < 32 {
            let (literal, rest) = bytes.as_slice().split_at_checked(control + 1)?;
            out.extend_from_slice(literal);
            bytes = rest.iter();
        } else {
            let length = match control >> 5 {
                7 => 7 + usize::from(*bytes.next()?),
                short => short,
            } + 2;
            let back = (control & 0x1f) << 8 | usize::from(*bytes.next()?);
            let start = out.len().checked_sub(back + 1)?;
            // What is copied may overlap with the copy.
            for place in start..start + length {
                out.push(out[place]);
            }
        }
        if out.len() > whole {
            return None;
        }
    }
    (out.len() == whole).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_overlap() {
        // A literal `ab`, then 10 bytes from 2 back.
        let packed = [1, b'a', b'b', 7 << 5, 1, 1];
        assert_eq!(decompress(&packed, 12).unwrap(), b"abababababab");
        assert_eq!(decompress(&packed, 11), None);
        assert_eq!(decompress(&[0x20, 9], 3), None, "it points before the beginning");
        assert_eq!(decompress(&[5, 1], 6), None, "it ends early");
        assert_eq!(decompress(&[], u64::MAX), None);
    }
}
