//! Numbers and strings, as they are written.

/// Appends a length.
pub(crate) fn length(out: &mut Vec<u8>, length: usize) {
    match length {
        0..=0x3f => out.push(length as u8),
        0x40..=0x3fff => out.extend([0x40 | (length >> 8) as u8, length as u8]),
        _ => match u32::try_from(length) {
            Ok(length) => {
                out.push(0x80);
                out.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => long_length(out, length as u64),
        },
    }
}

/// Appends a length of eight bytes.
pub(crate) fn long_length(out: &mut Vec<u8>, length: u64) {
    out.push(0x81);
    out.extend_from_slice(&length.to_be_bytes());
}

/// Appends a string.
pub(crate) fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, bytes.len());
    out.extend_from_slice(bytes);
}
