//! The output queue of a link: few pieces, for one gather-write.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Most slices in one gather-write; the system takes up to 1,024.
pub(crate) const SLICES_MAX: usize = 256;
/// Slices of an ordinary answer or two. Clearing an array for more takes longer than filling these.
pub(crate) const SLICES_FEW: usize = 8;
/// A buffer that grew past this is not kept for the next batch.
const BUFFER_BYTES_KEPT: usize = 512 << 10;
/// Bytes at the front of a buffer that may be sent before its room is used again. That costs a
/// copy of the unsent rest, which is empty if all was sent.
const SENT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// The buffer for the next batch of any link of this thread. The processor still has it in its
    /// caches, and a link that has nothing to send owns none.
    static SPARE: Cell<BytesMut> = Cell::default();
}

/// An output queue. Small replies are encoded into [`Output::buffer`]; large ones are added with
/// [`Output::push`] and sent without a copy.
///
/// There is one buffer, however many pieces stand between its bytes. Each piece knows its place
/// among them, so a batch of large replies costs no allocation.
#[derive(Debug, Default)]
pub struct Output {
    buffer: BytesMut,
    /// Bytes of the buffer that have been sent since this output was made.
    buffer_sent: usize,
    /// Those of them that the buffer no longer holds.
    buffer_dropped: usize,
    pieces: VecDeque<Piece>,
    piece_bytes: usize,
}

#[derive(Debug)]
struct Piece {
    /// Bytes of the buffer that come before it, counted since this output was made.
    after: usize,
    bytes: Bytes,
}

impl Output {
    /// The buffer for encoded frames. They follow all pieces that were pushed so far.
    pub fn buffer(&mut self) -> &mut BytesMut {
        if self.buffer.capacity() == 0 {
            self.buffer = SPARE.try_with(Cell::take).unwrap_or_default();
        }
        &mut self.buffer
    }

    /// Appends bytes without copying them.
    pub fn push(&mut self, bytes: Bytes) {
        self.piece_bytes += bytes.len();
        self.pieces.push_back(Piece { after: self.buffer_dropped + self.buffer.len(), bytes });
    }

    /// Bytes that wait to be sent.
    pub fn len(&self) -> usize {
        self.piece_bytes + self.unsent().len()
    }

    /// Whether everything was sent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops everything, for a peer that will never read it.
    pub fn clear(&mut self) {
        *self = Output::default();
    }

    /// Whether the whole output fits into [`SLICES_FEW`] slices.
    pub(crate) fn is_in_few_slices(&self) -> bool {
        // There may be bytes of the buffer before each piece, and after the last one.
        2 * self.pieces.len() < SLICES_FEW
    }

    /// Fills `slices` with the bytes to send next, in order; gives the number of slices.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let buffer = self.unsent();
        let mut taken = 0;
        let parts = self.pieces.iter().flat_map(|piece| {
            let before = &buffer[taken..piece.after - self.buffer_sent];
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
        let rest = &buffer[taken..];
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
        self.buffer_sent += sent;
        self.reuse_buffer();
    }

    /// The bytes of the buffer that are still to be sent.
    fn unsent(&self) -> &[u8] {
        &self.buffer[self.buffer_sent - self.buffer_dropped..]
    }

    fn reuse_buffer(&mut self) {
        let sent = self.buffer_sent - self.buffer_dropped;
        if sent == self.buffer.len() {
            self.buffer_dropped = self.buffer_sent;
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            give_back(buffer);
        } else if sent > SENT_BYTES_MAX {
            self.buffer_dropped = self.buffer_sent;
            self.buffer.advance(sent);
        }
    }
}

/// Keeps an empty buffer for the next batch, unless it is too large or the kept one is larger.
fn give_back(buffer: BytesMut) {
    // Fails when the thread ends, and then no link needs the buffer.
    let _ = SPARE.try_with(|spare| {
        let other = spare.take();
        let capacities = other.capacity()..=BUFFER_BYTES_KEPT;
        spare.set(if capacities.contains(&buffer.capacity()) { buffer } else { other });
    });
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
    fn few_slices_are_enough_where_it_says_so() {
        let mut output = Output::default();
        let mut pieces = 0;
        while output.is_in_few_slices() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            assert!(output.slices(&mut slices) <= SLICES_FEW);
            output.push(Bytes::from_static(b"piece"));
            output.buffer().extend_from_slice(b"between");
            pieces += 1;
        }
        assert_eq!(pieces, SLICES_FEW / 2);
    }

    #[test]
    fn an_output_that_is_sent_leaves_its_buffer_to_the_next() {
        let (mut one, mut other) = (Output::default(), Output::default());
        one.buffer().extend_from_slice(&[1; 10_000]);
        let place = one.buffer().as_ptr();
        drain(&mut one, 3000);
        assert_eq!(one.buffer.capacity(), 0);
        other.buffer().extend_from_slice(&[2; 10_000]);
        assert_eq!(other.buffer().as_ptr(), place);
        one.buffer().extend_from_slice(b"one");
        assert_eq!(drain(&mut other, 10_000), [2; 10_000]);
        assert_eq!(drain(&mut one, 10_000), b"one");
    }

    #[test]
    fn a_buffer_that_is_never_empty_does_not_grow_for_ever() {
        let mut output = Output::default();
        for _ in 0..1000 {
            output.push(Bytes::from_static(b"PIECE"));
            output.buffer().extend_from_slice(&[7; 10_000]);
            output.advance(output.len() - 1);
        }
        assert!(output.buffer.capacity() < 4 * SENT_BYTES_MAX, "{}", output.buffer.capacity());
        assert_eq!(output.len(), 1);
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
