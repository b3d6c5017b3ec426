//! The bytes that have arrived and are not used yet.

use std::io;
use std::ops::Range;

/// Initial free space, and the least to be free again after a long message.
const ROOM_BYTES: usize = 64 << 10;
/// A buffer larger than this is shrunk when it is no longer needed.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A buffer that bytes are appended to, and whole messages are taken off. It grows as bytes arrive.
pub struct InputBuffer {
    buffer: Vec<u8>,
    filled: Range<usize>,
}

impl Default for InputBuffer {
    fn default() -> InputBuffer {
        InputBuffer { buffer: vec![0; ROOM_BYTES], filled: 0..0 }
    }
}

impl InputBuffer {
    /// The bytes that are not consumed.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(self.filled.clone()).unwrap_or_default()
    }

    /// Takes the first bytes off, at most all; they stay readable until the next change.
    pub fn consume(&mut self, count: usize) -> &[u8] {
        let start = self.filled.start;
        self.filled.start += count.min(self.filled.len());
        self.buffer.get(start..self.filled.start).unwrap_or_default()
    }

    /// Lets `read` append bytes; returns how many it has read.
    pub fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        self.make_room();
        let room = self.buffer.get_mut(self.filled.end..).unwrap_or_default();
        let room_bytes = room.len();
        let count = read(room)?.min(room_bytes);
        self.filled.end += count;
        Ok(count)
    }

    /// Appends bytes.
    pub fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.make_room();
            let room = self.buffer.get_mut(self.filled.end..).unwrap_or_default();
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.filled.end += now.len();
            bytes = later;
        }
    }

    fn make_room(&mut self) {
        if self.filled.is_empty() {
            self.filled = 0..0;
            if self.buffer.len() > KEPT_BYTES_MAX {
                self.buffer = vec![0; ROOM_BYTES];
            }
        }
        if self.filled.end < self.buffer.len() {
            return;
        }
        if self.filled.start > self.buffer.len() / 2 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        } else {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }
}
