//! Files of keys: logs of records.

use std::path::Path;

use zodium_disk::MemoryDisk;
use zodium_keylog::LogReader;

use super::{Target, linear};

pub(super) const FILES: Target = Target {
    name: "key-logs",
    seeds: || {
        let header = b"ZodiumKeys\r\n\0\0\0\x01";
        let mut log = header.to_vec();
        let frames = [(b'S', &[0; 8][..]), (b'R', b"a record"), (b'M', b"some"), (b'R', b"more")];
        for (marker, body) in frames {
            frame(&mut log, marker, body);
        }
        let torn = log[..log.len() - 3].to_vec();
        let mut damaged = log.clone();
        damaged[20] ^= 1;
        let synced = (log.len() as u64).to_be_bytes();
        frame(&mut damaged, b'S', &synced);
        vec![header.to_vec(), log, torn, damaged]
    },
    check,
    memory_bytes_max: |length| linear(length) + (1 << 16),
};

fn frame(out: &mut Vec<u8>, marker: u8, body: &[u8]) {
    let length = u32::try_from(body.len()).unwrap_or(0).to_be_bytes();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&length), body);
    out.extend([0xd1, marker]);
    out.extend(length);
    out.extend(sum.to_be_bytes());
    out.extend(body);
}

/// Each record is a part of the file, and the sound ones end within it.
fn check(input: &[u8]) {
    let (disk, path) = (MemoryDisk::new(), Path::new("keys.log"));
    disk.put(path, input.to_vec());
    let Ok(Some(mut reader)) = LogReader::open(&disk, path) else { return };
    let mut bytes = 0;
    while let Ok(Some(chunk)) = reader.next_chunk() {
        bytes += chunk.records().map(|record| record.len() + 10).sum::<usize>();
    }
    assert!(reader.position() <= input.len() as u64);
    assert!(bytes as u64 <= reader.position());
}
