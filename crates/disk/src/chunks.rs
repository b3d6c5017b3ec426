//! Growable bytes in chunks: a large file in memory grows without being moved.
//!
//! Copies share their chunks until one of them changes (copy on write), so snapshots of a file
//! cost little.

use std::sync::Arc;

/// Bytes of a chunk; those behind the length are zero.
const CHUNK_BYTES: usize = 64 << 10;

/// Growable bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunks {
    chunks: Vec<Arc<Box<[u8]>>>,
    length: usize,
}

impl Chunks {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Reads up to the length of the buffer from `start` on; gives the number of bytes.
    pub(crate) fn read(&self, buffer: &mut [u8], start: usize) -> usize {
        let count = buffer.len().min(self.length.saturating_sub(start));
        let mut done = 0;
        while done < count {
            let piece = self.piece(start + done, count - done);
            buffer[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
        count
    }

    /// Writes all bytes at `start`; a gap before them is filled with zeros.
    pub(crate) fn write(&mut self, bytes: &[u8], start: usize) {
        if self.length < start + bytes.len() {
            self.resize(start + bytes.len());
        }
        let mut done = 0;
        while done < bytes.len() {
            let (chunk, offset) = ((start + done) / CHUNK_BYTES, (start + done) % CHUNK_BYTES);
            let count = (CHUNK_BYTES - offset).min(bytes.len() - done);
            let chunk = Arc::make_mut(&mut self.chunks[chunk]);
            chunk[offset..offset + count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
    }

    /// Truncates, or extends with zeros.
    pub(crate) fn resize(&mut self, length: usize) {
        let kept = length.div_ceil(CHUNK_BYTES);
        self.chunks.resize_with(kept, || vec![0; CHUNK_BYTES].into_boxed_slice().into());
        if length < self.length
            && let Some(last) = self.chunks.last_mut()
        {
            let end = length - (kept - 1) * CHUNK_BYTES;
            Arc::make_mut(last)[end..].fill(0);
        }
        self.length = length;
    }

    /// Replaces the bytes from `start` on by those of `other`.
    pub(crate) fn copy_from(&mut self, other: &Chunks, start: usize) {
        self.resize(other.length);
        let mut position = start;
        while position < other.length {
            let piece = other.piece(position, other.length - position);
            self.write(piece, position);
            position += piece.len();
        }
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.read(&mut bytes, 0);
        bytes
    }

    /// The bytes from `start` to the end of their chunk, at most `count`.
    fn piece(&self, start: usize, count: usize) -> &[u8] {
        let (chunk, offset) = (start / CHUNK_BYTES, start % CHUNK_BYTES);
        &self.chunks[chunk][offset..CHUNK_BYTES.min(offset + count)]
    }
}

impl From<&[u8]> for Chunks {
    fn from(bytes: &[u8]) -> Chunks {
        let mut chunks = Chunks::default();
        chunks.write(bytes, 0);
        chunks
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONGEST: usize = 3 * CHUNK_BYTES;

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, Vec<u8>),
        Resize(usize),
        Read(usize, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let near = prop_oneof![0..LONGEST, CHUNK_BYTES - 2..CHUNK_BYTES + 2, 0..4_usize];
        let bytes = prop::collection::vec(1..=255_u8, 0..100);
        let step = prop_oneof![
            (near.clone(), bytes).prop_map(|(start, bytes)| Step::Write(start, bytes)),
            near.clone().prop_map(Step::Resize),
            (near, 0..LONGEST).prop_map(|(start, count)| Step::Read(start, count)),
        ];
        prop::collection::vec(step, 0..20)
    }

    proptest! {
        #[test]
        fn chunks_hold_what_one_piece_of_memory_would(steps in steps()) {
            let (mut chunks, mut model) = (Chunks::default(), Vec::new());
            for step in steps {
                match step {
                    Step::Write(start, bytes) => {
                        chunks.write(&bytes, start);
                        model.resize(model.len().max(start + bytes.len()), 0);
                        model[start..start + bytes.len()].copy_from_slice(&bytes);
                    }
                    Step::Resize(length) => {
                        chunks.resize(length);
                        model.resize(length, 0);
                    }
                    Step::Read(start, count) => {
                        let mut read = vec![0; count];
                        let found = chunks.read(&mut read, start);
                        let expected = &model[start.min(model.len())..];
                        let expected = &expected[..count.min(expected.len())];
                        prop_assert_eq!(&read[..found], expected);
                    }
                }
                prop_assert_eq!(chunks.len(), model.len());
            }
            prop_assert_eq!(chunks.to_vec(), model);
        }
    }

    #[test]
    fn a_copy_from_somewhere_on_leaves_what_is_before() {
        let mut copy = Chunks::from(&[1; CHUNK_BYTES + 10][..]);
        copy.copy_from(&Chunks::from(&[2; 2 * CHUNK_BYTES][..]), CHUNK_BYTES + 5);
        let mut expected = vec![1; CHUNK_BYTES + 5];
        expected.resize(2 * CHUNK_BYTES, 2);
        assert!(copy.to_vec() == expected);
    }
}
