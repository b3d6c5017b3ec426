//! The checksum of files and of dumped values: a CRC-64.

use crc::{CRC_64_REDIS, Crc, Digest, Table};

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The checksum of some bytes.
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    CRC.checksum(bytes)
}

/// A checksum of bytes that come one after the other.
pub(crate) fn begin() -> Digest<'static, u64, Table<16>> {
    CRC.digest()
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_the_sum_of_redis() {
        assert_eq!(super::sum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }
}
