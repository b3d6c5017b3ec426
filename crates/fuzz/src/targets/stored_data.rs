//! Data of NEO's records: their sum, and their compression.

use sha1::{Digest, Sha1};
use zodium_neo::{OBJECT_BYTES_MAX, StoredData};

use super::Target;

pub(super) const STORED_DATA: Target = Target {
    name: "neo-data",
    seeds: || {
        let stored = StoredData::compress(&b"again and again ".repeat(100));
        let large = StoredData::compress(&vec![0; 1 << 20]);
        let seed = |data: StoredData| [&[data.compression][..], &data.value].concat();
        let others: [&[u8]; 4] = [b"\0plain", b"\x02unknown", b"\x01", b""];
        [stored, large].map(seed).into_iter().chain(others.map(<[u8]>::to_vec)).collect()
    },
    check: |input| {
        let Some((compression, value)) = input.split_first() else { return };
        let (hash, value) = (Sha1::digest(value).into(), value.to_vec());
        let stored = StoredData { compression: *compression, hash, value };
        let Ok(data) = stored.into_data() else { return };
        assert!(data.len() <= OBJECT_BYTES_MAX);
        assert_eq!(StoredData::compress(&data).into_data().as_ref(), Ok(&data));
    },
    // Zlib needs one byte for 1,032, of which there are three copies; and memory of its own.
    memory_bytes_max: |length| (1 << 20) + 8 * 1032 * length,
};
