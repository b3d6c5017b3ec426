//! The input buffer of a connection.

use std::io;
use std::ops::Range;

use zodium_zeo::codec::FrameError;
use zodium_zeo::codec::frame::{HEADER_LENGTH, Peek, peek_frame};

/// Longest frame accepted. The buffer grows as bytes arrive, not by the announced length.
const FRAME_BYTES_MAX: u32 = 1 << 30;
/// Initial free space, and the least to be free again after a long frame.
const ROOM_BYTES: usize = 64 << 10;
/// A buffer larger than this is shrunk when it is no longer needed.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A buffer that whole frames are taken off.
pub(crate) struct Input {
    buffer: Vec<u8>,
    filled: Range<usize>,
}

impl Input {
    pub(crate) fn new() -> Input {
        Input { buffer: vec![0; ROOM_BYTES], filled: 0..0 }
    }

    /// The payload of the next frame, if it has arrived completely. Fails if the bytes are no
    /// frame.
    pub(crate) fn next_frame(&mut self) -> io::Result<Option<&[u8]>> {
        self.next_payload().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// As [`Input::next_frame`], with the error of the frame itself.
    pub(crate) fn next_payload(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let rest = self.buffer.get(self.filled.clone()).unwrap_or_default();
        match peek_frame(rest, FRAME_BYTES_MAX)? {
            Peek::Complete(payload) => {
                let start = self.filled.start + HEADER_LENGTH;
                let end = start + payload.len();
                self.filled.start = end;
                Ok(self.buffer.get(start..end))
            }
            Peek::Missing(_) => Ok(None),
        }
    }

    /// Lets `read` append bytes; returns how many it has read.
    pub(crate) fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.make_room();
        let room = self.buffer.get_mut(self.filled.end..).unwrap_or_default();
        let room_bytes = room.len();
        let count = read(room)?.min(room_bytes);
        self.filled.end += count;
        Ok(count)
    }

    /// Appends bytes.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) {
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

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;
    use zodium_zeo::codec::frame::encode_frame;

    use super::*;

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_they_were_cut(
            lengths in prop::collection::vec(0_usize..200_000, 1..8),
            pieces in prop::collection::vec(1_usize..90_000, 1..8),
        ) {
            let mut stream = BytesMut::new();
            let frames: Vec<_> =
                lengths.iter().enumerate().map(|(n, length)| vec![n as u8; *length]).collect();
            frames.iter().for_each(|frame| encode_frame(&mut stream, frame).unwrap());
            let (mut input, mut seen) = (Input::new(), Vec::new());
            let (mut rest, mut turn) = (&stream[..], 0);
            while !rest.is_empty() {
                let piece = pieces[turn % pieces.len()].min(rest.len());
                if turn % 2 == 0 {
                    input.append(&rest[..piece]);
                    rest = &rest[piece..];
                } else {
                    let count = input.fill(|room| {
                        let count = piece.min(room.len());
                        room[..count].copy_from_slice(&rest[..count]);
                        Ok(count)
                    });
                    rest = &rest[count.unwrap()..];
                }
                turn += 1;
                while let Some(frame) = input.next_frame().unwrap() {
                    seen.push(frame.to_vec());
                }
            }
            prop_assert_eq!(seen, frames);
        }
    }

    #[test]
    fn what_announces_too_much_is_no_frame() {
        let mut input = Input::new();
        input.append(b"HTTP");
        assert!(input.next_frame().is_err());
    }
}
