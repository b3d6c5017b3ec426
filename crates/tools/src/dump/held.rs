//! Records of one transaction that wait until all of them are known, to be written in the order of
//! their oids.
//!
//! Key decision: they wait as the bytes that will be written. What exceeds a fixed part of memory
//! goes to a temporary file, so a transaction may be larger than memory.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use zodium_types::Oid;

/// Bytes of records in memory.
const MEMORY_BYTES: usize = 24 << 20;
/// Bytes read back at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Each record is preceded by its length.
const LENGTH_BYTES: usize = 8;

#[derive(Default)]
pub(super) struct HeldRecords {
    /// Oid and place of each record, in the order of their arrival.
    records: Vec<(Oid, u64)>,
    /// The end of what was added; the rest is in the file.
    memory: Vec<u8>,
    /// Bytes in the file.
    filed: u64,
    file: Option<File>,
}

impl HeldRecords {
    /// Adds a record as `write` appends it.
    pub(super) fn add(&mut self, oid: Oid, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let start = self.memory.len();
        self.records.push((oid, self.filed + start as u64));
        self.memory.extend([0; LENGTH_BYTES]);
        write(&mut self.memory);
        let length = (self.memory.len() - start - LENGTH_BYTES) as u64;
        self.memory[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        if self.memory.len() > MEMORY_BYTES { self.file_away() } else { Ok(()) }
    }

    fn file_away(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(crate::temporary_file()?),
        };
        file.write_all_at(&self.memory, self.filed)?;
        self.filed += self.memory.len() as u64;
        self.memory.clear();
        self.memory.shrink_to(MEMORY_BYTES);
        Ok(())
    }

    /// Writes all records in the order of their oids, those of one oid in the order of their
    /// arrival, and forgets them.
    pub(super) fn write_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.records.sort_unstable();
        if self.filed > 0 {
            self.file_away()?;
        }
        for (_, place) in &self.records {
            match &self.file {
                Some(file) if self.filed > 0 => copy(file, *place, out)?,
                _ => out.write_all(in_memory(&self.memory, *place as usize))?,
            }
        }
        self.records.clear();
        self.memory.clear();
        (self.filed, self.file) = (0, None);
        Ok(())
    }
}

fn in_memory(memory: &[u8], place: usize) -> &[u8] {
    let (length, rest) = memory[place..].split_at(LENGTH_BYTES);
    let length = length.try_into().map_or(0, u64::from_le_bytes);
    &rest[..length as usize]
}

fn copy(file: &File, place: u64, out: &mut impl Write) -> io::Result<()> {
    let mut length = [0; LENGTH_BYTES];
    file.read_exact_at(&mut length, place)?;
    let (mut position, mut left) = (place + LENGTH_BYTES as u64, u64::from_le_bytes(length));
    let mut chunk = vec![0; CHUNK_BYTES.min(left as usize)];
    while left > 0 {
        let count = left.min(chunk.len() as u64);
        let part = &mut chunk[..count as usize];
        file.read_exact_at(part, position)?;
        out.write_all(part)?;
        (position, left) = (position + count, left - count);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_in_the_order_of_oids_and_then_of_arrival() {
        let mut held = HeldRecords::default();
        for round in 0..2 {
            let mut out = Vec::new();
            for (oid, text) in [(3, "c"), (1, "a1 "), (2, "b"), (1, "a2 ")] {
                held.add(Oid(oid), |memory| memory.extend(text.bytes())).unwrap();
            }
            held.write_to(&mut out).unwrap();
            assert_eq!(out, b"a1 a2 bc", "round {round}");
        }
    }

    #[test]
    fn what_does_not_fit_into_memory_waits_in_a_file() {
        let mut held = HeldRecords::default();
        let record = |oid: u64| vec![oid as u8; 9 << 20];
        for oid in (0..5).rev() {
            held.add(Oid(oid), |memory| memory.extend(record(oid))).unwrap();
        }
        assert!(held.filed > 0 && held.memory.len() <= MEMORY_BYTES);
        let mut out = Vec::new();
        held.write_to(&mut out).unwrap();
        assert!(out == (0..5).flat_map(record).collect::<Vec<_>>());
        held.add(Oid(0), |memory| memory.push(b'x')).unwrap();
        out.clear();
        held.write_to(&mut out).unwrap();
        assert_eq!(out, b"x");
    }
}
