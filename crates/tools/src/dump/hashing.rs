//! The hashes of a dump.

use sha1::{Digest, Sha1};
use sha2::{Sha256, Sha512};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// SHA-1 of some data, in hexadecimal digits.
pub fn sha1_of(data: &[u8]) -> [u8; 40] {
    let mut digits = [0; 40];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(Sha1::digest(data)) {
        pair.copy_from_slice(&digits_of(byte));
    }
    digits
}

fn digits_of(byte: u8) -> [u8; 2] {
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

/// The hash of that name in hexadecimal digits; `None` for an unknown name.
pub(super) fn named(name: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let bytes = match name {
        b"null" => vec![0],
        b"adler32" => simd_adler32::adler32(&data).to_be_bytes().to_vec(),
        b"crc32" => crc32fast::hash(data).to_be_bytes().to_vec(),
        b"sha1" => return Some(sha1_of(data).to_vec()),
        b"sha256" => Sha256::digest(data).to_vec(),
        b"sha512" => Sha512::digest(data).to_vec(),
        _ => return None,
    };
    Some(bytes.into_iter().flat_map(digits_of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_known_ones() {
        for (name, expected) in [
            ("null", "00"),
            ("adler32", "024d0127"),
            ("crc32", "352441c2"),
            ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ] {
            assert_eq!(named(name.as_bytes(), b"abc").unwrap(), expected.as_bytes());
        }
        assert_eq!(named(b"sha512", b"abc").unwrap().len(), 128);
        assert_eq!(named(b"md5", b"abc"), None);
    }
}
