//! What waits to be sent on a link, as few pieces for one gather-write.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Most pieces in one gather-write; the system takes up to 1,024.
pub(crate) const PIECES_MAX: usize = 64;
/// A buffer that grew past this is not kept for the next batch.
const BUFFER_BYTES_KEPT: usize = 256 << 10;

/// An output queue. Small replies are encoded into [`Output::buffer`], large ones are put between
/// with [`Output::push`] and sent from where they lie.
#[derive(Debug, Default)]
pub struct Output {
    pieces: VecDeque<Bytes>,
    piece_bytes: usize,
    buffer: BytesMut,
}

impl Output {
    /// The buffer to append encoded frames to. Its contents come after all pieces pushed so far.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Appends bytes without copying them.
    pub fn push(&mut self, bytes: Bytes) {
        self.seal();
        self.piece_bytes += bytes.len();
        self.pieces.push_back(bytes);
    }

    /// Bytes that wait to be sent.
    pub fn len(&self) -> usize {
        self.piece_bytes + self.buffer.len()
    }

    /// Whether everything was sent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops everything: the peer will never take it.
    pub(crate) fn clear(&mut self) {
        *self = Output::default();
    }

    /// The first pieces, in order.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; PIECES_MAX]) -> usize {
        let buffer = std::iter::once(&self.buffer[..]);
        let pieces = self.pieces.iter().map(|piece| &piece[..]).chain(buffer);
        let mut count = 0;
        for (slot, piece) in slices.iter_mut().zip(pieces.filter(|piece| !piece.is_empty())) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    /// Drops bytes that have been sent from the front.
    pub(crate) fn advance(&mut self, mut sent: usize) {
        while let Some(front) = self.pieces.front_mut() {
            let taken = sent.min(front.len());
            front.advance(taken);
            self.piece_bytes -= taken;
            sent -= taken;
            if !front.is_empty() {
                return;
            }
            self.pieces.pop_front();
        }
        self.buffer.advance(sent);
        if self.buffer.is_empty() {
            if self.buffer.capacity() > BUFFER_BYTES_KEPT {
                self.buffer = BytesMut::new();
            }
            self.buffer.clear();
        }
    }

    fn seal(&mut self) {
        if !self.buffer.is_empty() {
            let sealed = self.buffer.split().freeze();
            self.piece_bytes += sealed.len();
            self.pieces.push_back(sealed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(output: &mut Output, step: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        while !output.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let count = output.slices(&mut slices);
            let all: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
            let taken = step.min(all.len());
            sent.extend_from_slice(&all[..taken]);
            output.advance(taken);
        }
        sent
    }

    #[test]
    fn bytes_leave_in_the_order_they_came_however_the_socket_takes_them() {
        for step in 1..20 {
            let mut output = Output::default();
            output.buffer().extend_from_slice(b"one");
            output.push(Bytes::from_static(b"TWO"));
            output.push(Bytes::from_static(b"THREE"));
            output.buffer().extend_from_slice(b"four");
            assert_eq!(output.len(), 15);
            assert_eq!(drain(&mut output, step), b"oneTWOTHREEfour");
        }
    }

    #[test]
    fn more_pieces_than_one_write_takes_still_all_leave() {
        let mut output = Output::default();
        for _ in 0..3 * PIECES_MAX {
            output.push(Bytes::from_static(b"x"));
        }
        assert_eq!(drain(&mut output, usize::MAX).len(), 3 * PIECES_MAX);
    }
}
