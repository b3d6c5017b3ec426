//! The bytes of a log: its header, and the frames of records.
//!
//! A frame is two bytes of a marker, the length of the body, a CRC-32C over length and body, and
//! the body. A record has one frame, or several that follow each other if it is long. Each group
//! that is written together begins with a frame of another marker. It says how much of the file was
//! synced by then. Damaged bytes below such a position were no write that a crash has cut off. A
//! log that was closed ends with such a frame.

use std::io;

use zodium_disk::DiskFile;

/// The first bytes of a log.
pub(crate) const MAGIC: &[u8; 12] = b"ZodiumKeys\r\n";
/// The version of the format.
pub(crate) const VERSION: u32 = 1;
/// Bytes before the first frame.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of a frame before its body.
pub(crate) const FRAME_BYTES: usize = 10;
/// Bytes of a frame that says how much of the file was synced.
pub(crate) const SYNCED_BYTES: usize = FRAME_BYTES + size_of::<u64>();
/// Most bytes of a record in one frame. Its length has four bytes.
const PIECE_BYTES: usize = 4 << 20;

const RECORD: [u8; 2] = [0xd1, b'R'];
const PIECE: [u8; 2] = [0xd1, b'M'];
const SYNCED: [u8; 2] = [0xd1, b'S'];

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A record of so many bytes, or its last piece.
    Record(usize),
    /// A piece of a record, which goes on in the next frame.
    Piece(usize),
    /// The file was synced up to this position.
    Synced(u64),
}

/// What is at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A sound frame.
    Frame(Frame),
    /// The beginning of a frame that has so many bytes in all.
    Incomplete(usize),
    /// No frame.
    Damaged,
}

/// The header of a file.
pub(crate) fn header() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&VERSION.to_be_bytes());
    bytes
}

/// Appends a record's frames.
pub(crate) fn write_record(out: &mut Vec<u8>, mut body: &[u8]) {
    while let Some((piece, rest)) = body.split_at_checked(PIECE_BYTES)
        && !rest.is_empty()
    {
        write(out, PIECE, piece);
        body = rest;
    }
    write(out, RECORD, body);
}

/// Appends the frame that says how much of the file was synced.
pub(crate) fn write_synced(out: &mut Vec<u8>, position: u64) {
    write(out, SYNCED, &position.to_be_bytes());
}

/// Whether a file of this length ends with a frame that says that all before it was synced.
pub(crate) fn is_sealed(file: &dyn DiskFile, length: u64) -> io::Result<bool> {
    let mut bytes = [0; SYNCED_BYTES];
    let Some(start) = length.checked_sub(SYNCED_BYTES as u64) else { return Ok(false) };
    file.read_exact_at(&mut bytes, start)?;
    Ok(find(&bytes) == Found::Frame(Frame::Synced(start)))
}

fn write(out: &mut Vec<u8>, marker: [u8; 2], body: &[u8]) {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&length), body);
    out.extend_from_slice(&marker);
    out.extend_from_slice(&length);
    out.extend_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(body);
}

/// Looks at the beginning of `bytes`.
pub(crate) fn find(bytes: &[u8]) -> Found {
    let is_prefix = |marker: [u8; 2]| bytes.iter().zip(marker).all(|(one, other)| *one == other);
    if ![RECORD, PIECE, SYNCED].into_iter().any(is_prefix) {
        return Found::Damaged;
    }
    let Some((head, rest)) = bytes.split_first_chunk::<FRAME_BYTES>() else {
        return Found::Incomplete(FRAME_BYTES);
    };
    let [one, two, length @ .., s0, s1, s2, s3] = *head;
    let sum = u32::from_be_bytes([s0, s1, s2, s3]);
    let count = u32::from_be_bytes(length) as usize;
    if [one, two] == SYNCED && count != size_of::<u64>() {
        return Found::Damaged;
    }
    let Some(body) = rest.get(..count) else { return Found::Incomplete(FRAME_BYTES + count) };
    if crc32c::crc32c_append(crc32c::crc32c(&length), body) != sum {
        return Found::Damaged;
    }
    Found::Frame(match body.try_into() {
        Ok(position) if [one, two] == SYNCED => Frame::Synced(u64::from_be_bytes(position)),
        _ if [one, two] == PIECE => Frame::Piece(count),
        _ => Frame::Record(count),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_found_whole_or_not_at_all() {
        for (marker, frame) in [(RECORD, Frame::Record(9)), (PIECE, Frame::Piece(9))] {
            let mut bytes = Vec::new();
            write(&mut bytes, marker, b"some body");
            assert_eq!(find(&bytes), Found::Frame(frame));
            for length in 1..bytes.len() {
                assert!(matches!(find(&bytes[..length]), Found::Incomplete(_)), "{length}");
            }
            for place in 0..bytes.len() {
                for bit in 0..8 {
                    let mut changed = bytes.clone();
                    changed[place] ^= 1 << bit;
                    assert!(!matches!(find(&changed), Found::Frame(_)), "{place} {bit}");
                }
            }
        }
        let mut bytes = Vec::new();
        write_synced(&mut bytes, 7);
        assert_eq!(find(&bytes), Found::Frame(Frame::Synced(7)));
    }
}
