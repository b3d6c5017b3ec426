//! A file as a stream.

use std::io::{self, Read, Write};

use crate::DiskFile;

/// Reads or writes a file from start to end, without a buffer.
#[derive(Debug)]
pub struct FileStream<'f> {
    file: &'f dyn DiskFile,
    position: u64,
}

impl<'f> FileStream<'f> {
    /// Creates a stream at the beginning of a file.
    pub fn new(file: &'f dyn DiskFile) -> FileStream<'f> {
        FileStream { file, position: 0 }
    }
}

impl Read for FileStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for FileStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.position)?;
        self.position += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
