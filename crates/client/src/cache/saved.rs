//! The format of a saved cache. A file is read back exactly as it was written, or not at all.
//!
//! ```text
//! "zodiumC1"
//! u32 length, source: what it was loaded from (text)
//! u64 the last transaction of the cache
//! for each revision: 1, u64 oid, u64 serial, u64 end (0: current), u32 length, data
//! 0, u64 number of revisions, u32 CRC-32C of everything before
//! ```
//!
//! All numbers are big-endian. Key decision: one checksum for the whole file. An incomplete file is
//! not used at all: that costs time, while a wrong revision could cost data.

use std::io::{self, Read, Write};

use bytes::Bytes;
use thiserror::Error;
use zodium_types::{Oid, Tid};

use super::history::History;
use crate::Revision;

const MAGIC: &[u8; 8] = b"zodiumC1";
const REVISION: u8 = 1;
const END: u8 = 0;
/// Longest source text.
const SOURCE_BYTES_MAX: usize = 64 << 10;

/// Why a file cannot be used.
#[derive(Debug, Error)]
pub(super) enum Useless {
    #[error("it holds objects of {0}")]
    Foreign(String),
    #[error("it is of another version of Zodium")]
    OtherVersion,
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error("it cannot be read: {0}")]
    Unreadable(io::Error),
}

/// Computes the checksum of the bytes that pass.
struct Summed<S> {
    inner: S,
    sum: u32,
    bytes: u64,
}

/// The content of a cache at one moment.
pub(super) struct Snapshot {
    pub(super) last_tid: Tid,
    pub(super) histories: Vec<(Oid, History)>,
}

/// Writes the snapshot of a cache that was loaded from `source`.
pub(super) fn write(output: impl Write, source: &str, snapshot: &Snapshot) -> io::Result<()> {
    let mut output = Summed { inner: output, sum: 0, bytes: 0 };
    output.write_all(MAGIC)?;
    write_bytes(&mut output, source.as_bytes())?;
    output.write_all(&snapshot.last_tid.to_bytes())?;
    let mut count = 0_u64;
    for (oid, history) in &snapshot.histories {
        for revision in history.revisions() {
            output.write_all(&[REVISION])?;
            output.write_all(&oid.to_bytes())?;
            output.write_all(&revision.serial.to_bytes())?;
            output.write_all(&revision.end.unwrap_or(Tid::ZERO).to_bytes())?;
            write_bytes(&mut output, &revision.data)?;
            count += 1;
        }
    }
    output.write_all(&[END])?;
    output.write_all(&count.to_be_bytes())?;
    let sum = output.sum;
    output.write_all(&sum.to_be_bytes())
}

fn write_bytes(output: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    output.write_all(&length.to_be_bytes())?;
    output.write_all(bytes)
}

/// Reads a file of `length` bytes and passes its revisions on. After an error the passed revisions
/// must be discarded.
pub(super) fn read(
    input: impl Read,
    length: u64,
    source: &str,
    mut remember: impl FnMut(Oid, Revision),
) -> Result<Tid, Useless> {
    let mut input = Summed { inner: input, sum: 0, bytes: 0 };
    let magic = read_array(&mut input)?;
    if &magic != MAGIC {
        if is_other_version(MAGIC, &magic) {
            return Err(Useless::OtherVersion);
        }
        return Err(Useless::Damaged("it does not begin with the magic bytes of a saved cache"));
    }
    let found = read_bytes(&mut input, length, SOURCE_BYTES_MAX)?;
    if found != source.as_bytes() {
        return Err(Useless::Foreign(String::from_utf8_lossy(&found).into_owned()));
    }
    let last_tid = Tid(u64::from_be_bytes(read_array(&mut input)?));
    let mut count = 0_u64;
    while read_array(&mut input)? == [REVISION] {
        let oid = Oid(u64::from_be_bytes(read_array(&mut input)?));
        let serial = Tid(u64::from_be_bytes(read_array(&mut input)?));
        let end = Some(Tid(u64::from_be_bytes(read_array(&mut input)?)));
        let end = end.filter(|end| *end != Tid::ZERO);
        let data = Bytes::from(read_bytes(&mut input, length, usize::MAX)?);
        remember(oid, Revision { data, serial, end });
        count += 1;
    }
    let is_complete = u64::from_be_bytes(read_array(&mut input)?) == count;
    let sum = input.sum;
    let is_right = u32::from_be_bytes(read_array(&mut input)?) == sum;
    if !is_complete || !is_right || input.bytes != length {
        return Err(Useless::Damaged("its checksum does not match"));
    }
    Ok(last_tid)
}

/// Whether a file whose magic bytes end in the digit of its version begins with those of another
/// version.
pub(crate) fn is_other_version(magic: &[u8; 8], found: &[u8]) -> bool {
    let [name @ .., version] = magic;
    let digit = found.strip_prefix(name).and_then(<[u8]>::first);
    digit.is_some_and(|digit| digit.is_ascii_digit() && digit != version)
}

fn read_array<const N: usize>(input: &mut impl Read) -> Result<[u8; N], Useless> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads length-prefixed bytes. Memory is allocated only as far as the file can fill it.
fn read_bytes<R: Read>(
    input: &mut Summed<R>,
    length: u64,
    bytes_max: usize,
) -> Result<Vec<u8>, Useless> {
    let announced = u32::from_be_bytes(read_array(input)?) as usize;
    if announced > bytes_max || announced as u64 > length.saturating_sub(input.bytes) {
        return Err(Useless::Damaged("it contains a length beyond its end"));
    }
    let mut bytes = vec![0; announced];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl<S> Summed<S> {
    fn add(&mut self, bytes: &[u8]) {
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.add(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.add(&buffer[..count]);
        Ok(count)
    }
}

impl From<io::Error> for Useless {
    fn from(error: io::Error) -> Useless {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Useless::Damaged("it is truncated"),
            _ => Useless::Unreadable(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of another source, without revisions, with this length of its source.
    fn read_with_length(length: impl FnOnce(usize) -> usize) -> Useless {
        let mut file = Vec::new();
        let snapshot = Snapshot { last_tid: Tid(5), histories: Vec::new() };
        write(&mut file, "theirs", &snapshot).unwrap();
        let place = MAGIC.len()..MAGIC.len() + size_of::<u32>();
        let length = u32::try_from(length(file.len() - place.end)).unwrap();
        file[place].copy_from_slice(&length.to_be_bytes());
        read(&file[..], file.len() as u64, "ours", |_, _| ()).unwrap_err()
    }

    #[test]
    fn a_length_is_believed_up_to_the_end_of_the_file() {
        let foreign = |left| read_with_length(|rest| rest - left);
        for left in [0, 1] {
            let found = foreign(left);
            assert!(matches!(found, Useless::Foreign(_)), "{left} left: {found}");
        }
        for surplus in [1, 2, 60_000] {
            let found = read_with_length(|rest| rest + surplus).to_string();
            assert!(found.contains("a length beyond its end"), "{surplus} beyond: {found}");
        }
    }
}
