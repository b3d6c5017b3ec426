//! Writes and reads files that may be large without taking memory from the page cache.
//!
//! Key decision: the bytes of a backup are not read again soon, while a server on the same machine
//! needs its data file in memory. So a file of more than one buffer is written past the page cache
//! (`O_DIRECT`), and pages that were read are dropped. That also costs less processor time, since
//! no new pages are filled. File systems that refuse direct writes are written to as usual.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::os::fd::AsFd;

use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl};

/// Addresses, positions and lengths of direct writes are multiples of this: devices have sectors
/// of 512 or 4096 bytes.
const ALIGNMENT: usize = 4096;
/// Bytes that are written at once.
const BUFFER_BYTES: usize = 1 << 20;

/// A file that is written from its start to its end.
pub(crate) struct LargeFile {
    file: File,
    /// The bytes from `start` on are aligned.
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
    is_direct: bool,
    /// Whether the file system may be asked for direct writes.
    may_be_direct: bool,
}

impl LargeFile {
    /// Writes to `file`, which is empty.
    pub(crate) fn new(file: File) -> LargeFile {
        // Grows to its size with the first bytes: most files of a repository are small.
        let (buffer, start) = (Vec::new(), 0);
        LargeFile { file, buffer, start, filled: 0, is_direct: false, may_be_direct: true }
    }

    /// Brings all to stable storage.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_all()
    }

    /// Writes a buffer that is full.
    fn write_full(&mut self) -> io::Result<()> {
        if self.may_be_direct && !self.is_direct {
            self.is_direct = self.set_direct(true).is_ok();
            self.may_be_direct = self.is_direct;
        }
        self.write_out(0, self.filled)?;
        self.filled = 0;
        Ok(())
    }

    /// Writes a part of the buffer.
    fn write_out(&mut self, start: usize, end: usize) -> io::Result<()> {
        let mut done = start;
        while done < end {
            let rest = &self.buffer[self.start + done..self.start + end];
            match (&self.file).write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A file system may refuse direct writes only now, or the rest of one.
                Err(error) if self.is_direct && error.kind() == io::ErrorKind::InvalidInput => {
                    self.end_direct()?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn end_direct(&mut self) -> io::Result<()> {
        self.may_be_direct = false;
        if self.is_direct {
            self.set_direct(false)?;
            self.is_direct = false;
        }
        Ok(())
    }

    fn set_direct(&self, is_direct: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(self.file.as_fd())?;
        flags.set(OFlags::DIRECT, is_direct);
        Ok(fcntl_setfl(self.file.as_fd(), flags)?)
    }

    fn prepare(&mut self, bytes: usize) {
        let wanted = (self.filled + bytes).min(BUFFER_BYTES);
        if self.buffer.len() >= self.start + wanted {
            return;
        }
        if wanted < BUFFER_BYTES {
            self.buffer.resize(self.start + wanted, 0);
            return;
        }
        let mut whole = vec![0; BUFFER_BYTES + ALIGNMENT];
        let start = whole.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let filled = &self.buffer[self.start..self.start + self.filled];
        whole[start..start + filled.len()].copy_from_slice(filled);
        (self.buffer, self.start) = (whole, start);
    }
}

impl Write for LargeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.prepare(bytes.len());
        let count = bytes.len().min(BUFFER_BYTES - self.filled);
        let at = self.start + self.filled;
        self.buffer[at..at + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        if self.filled == BUFFER_BYTES {
            self.write_full()?;
        }
        Ok(count)
    }

    /// Writes what is left. Its length need not be aligned, so no direct write can follow.
    fn flush(&mut self) -> io::Result<()> {
        let aligned = if self.is_direct { self.filled / ALIGNMENT * ALIGNMENT } else { 0 };
        self.write_out(0, aligned)?;
        self.end_direct()?;
        self.write_out(aligned, self.filled)?;
        self.filled = 0;
        Ok(())
    }
}

/// Reads a file from its start to its end, once.
pub(crate) struct ReadOnce {
    file: File,
    position: u64,
}

impl ReadOnce {
    /// Reads `file`, which is at its start.
    pub(crate) fn new(file: File) -> ReadOnce {
        ReadOnce { file, position: 0 }
    }
}

impl Read for ReadOnce {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        // Only advice: a file system may ignore it.
        let _ = fadvise(&self.file, self.position, NonZero::new(count as u64), Advice::DontNeed);
        self.position += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_has_the_bytes_that_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let lengths = [0, 1, 4095, 4096, 300_000, BUFFER_BYTES, BUFFER_BYTES + 1, 3 << 20, 7];
        for sizes in [&[][..], &[5], &[BUFFER_BYTES], &[4096, BUFFER_BYTES], &lengths] {
            let mut file = LargeFile::new(File::create(&path).unwrap());
            let mut expected = Vec::new();
            for (size, byte) in sizes.iter().zip(1..) {
                let bytes: Vec<u8> = (0..*size).map(|at| (at / 7) as u8 ^ byte).collect();
                file.write_all(&bytes).unwrap();
                expected.extend(bytes);
            }
            file.sync().unwrap();
            assert!(fs::read(&path).unwrap() == expected, "{sizes:?}");
            // More may follow, which is written as usual.
            file.write_all(&vec![9; 2 * BUFFER_BYTES]).unwrap();
            file.sync().unwrap();
            expected.resize(expected.len() + 2 * BUFFER_BYTES, 9);
            assert!(fs::read(&path).unwrap() == expected, "{sizes:?}");
        }
    }

    #[test]
    fn small_files_take_little_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = LargeFile::new(File::create(folder.path().join("file")).unwrap());
        file.write_all(&[1; 1000]).unwrap();
        assert!(file.buffer.capacity() < 1 << 16);
    }
}
