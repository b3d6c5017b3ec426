//! Data files for the tests of this crate, made byte by byte, sound or not.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use zodium_disk::{Disk, DiskFile, FileLock, FileStatus, LockError, MemoryDisk, OpenMode};
use zodium_types::{Oid, Tid};

use super::{DataHeader, TransactionHeader, record_bytes};

/// What a record holds.
#[derive(Clone, Copy)]
pub(crate) enum Holds<'a> {
    Data(&'a [u8]),
    /// A back pointer.
    Back(u64),
}

/// A data file that grows.
#[derive(Clone)]
pub(crate) struct Crafted {
    pub(crate) bytes: Vec<u8>,
}

impl Crafted {
    pub(crate) fn new() -> Crafted {
        Crafted { bytes: b"FS30".to_vec() }
    }

    /// Three transactions of one, two and one records, and where each begins.
    pub(crate) fn three() -> (Crafted, [u64; 3]) {
        let mut data = Crafted::new();
        let starts = [
            data.add(1, &[(1, b"first")]),
            data.add(2, &[(1, b"second"), (2, b"beside it")]),
            data.add(3, &[(3, b"third")]),
        ];
        (data, starts)
    }

    pub(crate) fn path() -> &'static Path {
        Path::new("Data.fs")
    }

    pub(crate) fn end(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Appends a transaction whose records have data, and returns its position.
    pub(crate) fn add(&mut self, tid: u64, records: &[(u64, &[u8])]) -> u64 {
        self.add_named(self.end(), tid, records)
    }

    /// Appends a transaction whose records say that it begins at `named`.
    pub(crate) fn add_named(&mut self, named: u64, tid: u64, records: &[(u64, &[u8])]) -> u64 {
        let records: Vec<_> = records.iter().map(|(oid, data)| (*oid, Holds::Data(data))).collect();
        self.add_described(named, tid, b"", &records)
    }

    /// Appends a transaction whose records hold data or back pointers.
    pub(crate) fn add_holding(&mut self, tid: u64, records: &[(u64, Holds<'_>)]) -> u64 {
        self.add_described(self.end(), tid, b"", records)
    }

    /// Appends a transaction with a description.
    pub(crate) fn add_described(
        &mut self,
        named: u64,
        tid: u64,
        description: &[u8],
        records: &[(u64, Holds<'_>)],
    ) -> u64 {
        let position = self.end();
        let data_length = |holds: &Holds<'_>| match holds {
            Holds::Data(data) => data.len() as u64,
            Holds::Back(_) => 0,
        };
        let mut header = TransactionHeader {
            tid: Tid(tid),
            length: 0,
            status: b' ',
            user_length: 0,
            description_length: description.len() as u16,
            extension_length: 0,
        };
        let bytes = records.iter().map(|(_, holds)| record_bytes(data_length(holds)));
        header.length = header.records_offset() + bytes.sum::<u64>();
        header.write(&mut self.bytes);
        self.bytes.extend_from_slice(description);
        for (oid, holds) in records {
            DataHeader {
                oid: Oid(*oid),
                tid: Tid(tid),
                previous: 0,
                transaction: named,
                version_length: 0,
                data_length: data_length(holds),
            }
            .write(&mut self.bytes);
            match holds {
                Holds::Data(data) => self.bytes.extend_from_slice(data),
                Holds::Back(back) => self.bytes.extend_from_slice(&back.to_be_bytes()),
            }
        }
        self.bytes.extend_from_slice(&header.length.to_be_bytes());
        position
    }

    /// Appends bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Puts bytes in place of those at a position.
    pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) {
        self.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Puts a number in place of the one at a position.
    pub(crate) fn put_number(&mut self, at: u64, number: u64) {
        self.put(at, &number.to_be_bytes());
    }

    /// A copy with a number in place of the one at a position.
    pub(crate) fn with_number(&self, at: u64, number: u64) -> Crafted {
        let mut copy = self.clone();
        copy.put_number(at, number);
        copy
    }

    /// Fills the bytes from `start` to `end` with zeros.
    pub(crate) fn zero(&mut self, start: u64, end: u64) {
        self.bytes[start as usize..end as usize].fill(0);
    }

    pub(crate) fn file(&self) -> Arc<dyn DiskFile> {
        file_of(&self.bytes)
    }
}

/// A file of these bytes.
pub(crate) fn file_of(bytes: &[u8]) -> Arc<dyn DiskFile> {
    let disk = MemoryDisk::new();
    disk.put(Crafted::path(), bytes.to_vec());
    disk.open(Crafted::path(), OpenMode::Read).unwrap()
}

/// A file that tells what was read of it. What touches one byte may be unreadable.
#[derive(Debug)]
pub(crate) struct Watched {
    file: Arc<dyn DiskFile>,
    bad: Option<u64>,
    reads: Mutex<Vec<(u64, usize)>>,
}

impl Watched {
    pub(crate) fn of(bytes: &[u8], bad: Option<u64>) -> Arc<Watched> {
        Arc::new(Watched { file: file_of(bytes), bad, reads: Mutex::default() })
    }

    /// The reads since this was asked last: where, and how many bytes.
    pub(crate) fn reads(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut *self.reads.lock())
    }
}

impl DiskFile for Watched {
    fn status(&self) -> io::Result<FileStatus> {
        self.file.status()
    }

    fn lock(&self) -> Result<FileLock, LockError> {
        self.file.lock()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.reads.lock().push((position, buffer.len()));
        let range = position..position + buffer.len() as u64;
        match self.bad.is_some_and(|bad| range.contains(&bad)) {
            true => Err(io::ErrorKind::Other.into()),
            false => self.file.read_at(buffer, position),
        }
    }

    fn read_resident_at(&self, _: &mut [u8], _: u64) -> io::Result<Option<usize>> {
        Ok(None)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, position)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }

    fn reserve(&self, start: u64, end: u64) -> io::Result<()> {
        self.file.reserve(start, end)
    }
}
