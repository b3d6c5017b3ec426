//! A file as a stream, from its beginning.

use std::io::{self, Read, Write};

use crate::DiskFile;

/// Reads or writes a file from front to end, each call as one of the file's. Not buffered.
#[derive(Debug)]
pub struct FileStream<'f> {
    file: &'f dyn DiskFile,
    position: u64,
}

impl<'f> FileStream<'f> {
    /// Begins at the file's beginning.
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
