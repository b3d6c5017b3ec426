//! The data of a record as NEO's clients send them, and its storages keep them.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use sha1::{Digest, Sha1};

use crate::scanner::MESSAGE_BYTES_MAX;

/// Most bytes of an object's data, as they are stored: every message that carries them has room for
/// so many.
pub const DATA_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 128;
/// Most bytes of an object's data once they are decompressed. Without a limit a peer, or a row of a
/// database, could make the reader allocate a thousand times its own bytes.
pub const OBJECT_BYTES_MAX: usize = 1 << 30;

/// `compression` of data that are stored as they are.
const PLAIN: u8 = 0;
/// `compression` of data that zlib has compressed.
const ZLIB: u8 = 1;

/// Data as they are stored: compressed if that made them smaller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredData {
    /// 0: as they are. 1: compressed by zlib.
    pub compression: u8,
    /// SHA-1 of `value`.
    pub hash: [u8; 20],
    /// The bytes.
    pub value: Vec<u8>,
}

impl StoredData {
    /// Compresses data, and keeps the result if it is smaller than they are.
    pub fn compress(data: &[u8]) -> StoredData {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        // Writing to a vector does not fail; if it did, the data would be stored as they are.
        let compressed = encoder.write_all(data).and_then(|()| encoder.finish());
        match compressed {
            Ok(value) if value.len() < data.len() => StoredData::of(ZLIB, value),
            _ => StoredData::of(PLAIN, data.to_vec()),
        }
    }

    /// Stores data as they are.
    pub fn plain(data: &[u8]) -> StoredData {
        StoredData::of(PLAIN, data.to_vec())
    }

    fn of(compression: u8, value: Vec<u8>) -> StoredData {
        StoredData { compression, hash: Sha1::digest(&value).into(), value }
    }

    /// The data of the object.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn into_data(self) -> Result<Vec<u8>, &'static str> {
        if <[u8; 20]>::from(Sha1::digest(&self.value)) != self.hash {
            return Err("do not have their SHA-1");
        }
        match self.compression {
            PLAIN => Ok(self.value),
            ZLIB => inflate(&self.value, OBJECT_BYTES_MAX),
            _ => Err("have an unknown compression"),
        }
    }
}

fn inflate(compressed: &[u8], bytes_max: usize) -> Result<Vec<u8>, &'static str> {
    let mut data = Vec::with_capacity(compressed.len().saturating_mul(3).min(bytes_max));
    let mut decoder = ZlibDecoder::new(compressed).take(bytes_max as u64 + 1);
    decoder.read_to_end(&mut data).map_err(|_| "cannot be decompressed")?;
    match data.len() <= bytes_max {
        true => Ok(data),
        false => Err("are larger than 1 GiB when they are decompressed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_do_not_become_smaller_are_stored_as_they_are() {
        let stored = StoredData::compress(b"short");
        assert_eq!((stored.compression, &stored.value[..]), (0, &b"short"[..]));
        assert_eq!(stored.into_data(), Ok(b"short".to_vec()));
    }

    #[test]
    fn data_that_become_smaller_are_compressed() {
        let data = b"again and again ".repeat(100);
        let stored = StoredData::compress(&data);
        assert_eq!(stored.compression, 1);
        assert!(stored.value.len() < data.len());
        assert_eq!(stored.into_data(), Ok(data));
    }

    #[test]
    fn no_more_is_decompressed_than_an_object_may_have() {
        let stored = StoredData::compress(&[0; 100_000]);
        assert_eq!(inflate(&stored.value, 100_000), Ok(vec![0; 100_000]));
        let refused = inflate(&stored.value, 99_999);
        assert_eq!(refused, Err("are larger than 1 GiB when they are decompressed"));
    }

    #[test]
    fn flipped_bit_is_found() {
        for data in [&b"short"[..], &b"again and again ".repeat(100)] {
            let mut stored = StoredData::compress(data);
            stored.value[3] ^= 4;
            assert_eq!(stored.into_data(), Err("do not have their SHA-1"));
        }
    }
}
