//! What waits to be sent on a link, as few pieces for one gather-write.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Most slices in one gather-write; the system takes up to 1,024.
pub(crate) const SLICES_MAX: usize = 256;
/// A buffer that grew past this is not kept for the next batch.
const BUFFER_BYTES_KEPT: usize = 256 << 10;

/// An output queue. Small replies are encoded into [`Output::buffer`], large ones are put between
/// with [`Output::push`] and sent from where they lie.
///
/// There is one buffer however many pieces stand between its bytes: each piece knows after how
/// many of them it comes, so that a batch of large replies costs no allocation.
#[derive(Debug, Default)]
pub struct Output {
    buffer: BytesMut,
    /// Bytes of the buffer that have been sent since this output was made.
    buffer_sent: usize,
    pieces: VecDeque<Piece>,
    piece_bytes: usize,
}

#[derive(Debug)]
struct Piece {
    /// It comes after so many bytes of the buffer, counted since this output was made.
    after: usize,
    bytes: Bytes,
}

impl Output {
    /// The buffer to append encoded frames to. What is appended comes after all pieces pushed so
    /// far.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Appends bytes without copying them.
    pub fn push(&mut self, bytes: Bytes) {
        self.piece_bytes += bytes.len();
        self.pieces.push_back(Piece { after: self.buffer_sent + self.buffer.len(), bytes });
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

    /// Fills in what is to be sent first, in order; gives the number of slices.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut taken = 0;
        let parts = self.pieces.iter().flat_map(|piece| {
            let before = &self.buffer[taken..piece.after - self.buffer_sent];
            taken += before.len();
            [before, &piece.bytes]
        });
        let mut slots = slices.iter_mut();
        let mut count = 0;
        for part in parts.filter(|part| !part.is_empty()) {
            let Some(slot) = slots.next() else { return count };
            *slot = IoSlice::new(part);
            count += 1;
        }
        let rest = &self.buffer[taken..];
        if let (false, Some(slot)) = (rest.is_empty(), slots.next()) {
            *slot = IoSlice::new(rest);
            count += 1;
        }
        count
    }

    /// Drops bytes that have been sent from the front.
    pub(crate) fn advance(&mut self, mut sent: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            let before = sent.min(piece.after - self.buffer_sent);
            self.buffer.advance(before);
            self.buffer_sent += before;
            sent -= before;
            if piece.after > self.buffer_sent {
                return;
            }
            let of_piece = sent.min(piece.bytes.len());
            piece.bytes.advance(of_piece);
            self.piece_bytes -= of_piece;
            sent -= of_piece;
            if !piece.bytes.is_empty() {
                return;
            }
            self.pieces.pop_front();
        }
        self.buffer.advance(sent);
        self.buffer_sent += sent;
        if self.buffer.is_empty() && self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = BytesMut::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(output: &mut Output, step: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        while !output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
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
        for _ in 0..3 * SLICES_MAX {
            output.push(Bytes::from_static(b"x"));
        }
        assert_eq!(drain(&mut output, usize::MAX).len(), 3 * SLICES_MAX);
    }
}
