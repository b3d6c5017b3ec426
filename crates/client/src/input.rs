//! The input buffer of a connection.

use std::io;

use zodium_transport::InputBuffer;
use zodium_zeo::codec::FrameError;
use zodium_zeo::codec::frame::{HEADER_LENGTH, Peek, peek_frame};

/// Longest frame accepted. The buffer grows as bytes arrive, not by the announced length.
const FRAME_BYTES_MAX: u32 = 1 << 30;
/// A buffer that whole frames are taken off.
pub(crate) struct Input {
    pub(crate) buffer: InputBuffer,
}

impl Input {
    pub(crate) fn new() -> Input {
        Input { buffer: InputBuffer::default() }
    }

    /// The payload of the next frame, if it has arrived completely. Fails if the bytes are no
    /// frame.
    pub(crate) fn next_frame(&mut self) -> io::Result<Option<&[u8]>> {
        self.next_payload().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// As [`Input::next_frame`], with the error of the frame itself.
    pub(crate) fn next_payload(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let length = match peek_frame(self.buffer.bytes(), FRAME_BYTES_MAX)? {
            Peek::Complete(payload) => HEADER_LENGTH + payload.len(),
            Peek::Missing(_) => return Ok(None),
        };
        Ok(self.buffer.consume(length).get(HEADER_LENGTH..))
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
                    input.buffer.append(&rest[..piece]);
                    rest = &rest[piece..];
                } else {
                    let count = input.buffer.fill(|room| {
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
        input.buffer.append(b"HTTP");
        assert!(input.next_frame().is_err());
    }
}
