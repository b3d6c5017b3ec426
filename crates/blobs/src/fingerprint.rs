//! Length and CRC-32C of a blob.

use std::io;

use zodium_disk::DiskFile;

/// Data are copied, and read where they are not sent, in pieces of this size.
pub(crate) const COPY_BYTES: usize = 1 << 20;

/// What is recorded of a blob's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Bytes in it.
    pub length: u64,
    /// CRC-32C of its bytes; `None` when they were not read.
    pub crc32c: Option<u32>,
}

impl Fingerprint {
    /// Reads a whole file, and calls `done` with the bytes so far. Blocking.
    pub fn of(file: &dyn DiskFile, mut done: impl FnMut(u64)) -> io::Result<Fingerprint> {
        let (mut length, mut sum) = (0, 0);
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let count = file.read_up_to(&mut buffer, length)?;
            if count == 0 {
                return Ok(Fingerprint { length, crc32c: Some(sum) });
            }
            sum = crc32c::crc32c_append(sum, &buffer[..count]);
            length += count as u64;
            done(length);
        }
    }
}
