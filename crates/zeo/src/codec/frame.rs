//! Splits a byte stream into frames: a length of 4 bytes, big-endian, and as many bytes.
//!
//! [`Frames`] walks a buffer and borrows each payload, for batches of small messages.
//! [`split_frame`] takes one payload off a buffer without a copy, for large ones that must outlive
//! the buffer. A length over the limit is refused as soon as its header has arrived, before any
//! room is allocated for it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::CodecError;

/// Bytes of a frame before its payload.
pub const HEADER_LENGTH: usize = 4;

/// Why a stream cannot be split into frames; the connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The peer announces a frame that is too long, or does not speak ZEO.
    #[error("a frame of {length} bytes is announced; at most {limit} are accepted")]
    TooLong {
        /// The announced length in bytes.
        length: u32,
        /// The limit that it exceeds.
        limit: u32,
    },
}

/// The beginning of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek<'a> {
    /// A whole frame with this payload; the frame has [`HEADER_LENGTH`] more bytes.
    Complete(&'a [u8]),
    /// A part of a frame, or nothing: at least so many more bytes are needed.
    Missing(usize),
}

/// Parses the frame at the beginning of `buffer`. `limit` is the longest payload accepted.
pub fn peek_frame(buffer: &[u8], limit: u32) -> Result<Peek<'_>, FrameError> {
    let Some((header, rest)) = buffer.split_first_chunk::<HEADER_LENGTH>() else {
        return Ok(Peek::Missing(HEADER_LENGTH - buffer.len()));
    };
    let length = u32::from_be_bytes(*header);
    if length > limit {
        return Err(FrameError::TooLong { length, limit });
    }
    Ok(match rest.get(..length as usize) {
        Some(payload) => Peek::Complete(payload),
        None => Peek::Missing(length as usize - rest.len()),
    })
}

/// Takes the first frame off `buffer` and gives its payload without a copy; `None` if the frame is
/// not complete.
pub fn split_frame(buffer: &mut BytesMut, limit: u32) -> Result<Option<Bytes>, FrameError> {
    match peek_frame(buffer, limit)? {
        Peek::Complete(payload) => {
            let length = payload.len();
            buffer.advance(HEADER_LENGTH);
            Ok(Some(buffer.split_to(length).freeze()))
        }
        Peek::Missing(_) => Ok(None),
    }
}

/// Walks the complete frames of a buffer.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    buffer: &'a [u8],
    limit: u32,
    consumed: usize,
}

impl<'a> Frames<'a> {
    /// Starts at the beginning of `buffer`, where a frame must begin.
    pub fn new(buffer: &'a [u8], limit: u32) -> Frames<'a> {
        Frames { buffer, limit, consumed: 0 }
    }

    /// The payload of the next frame; `None` if none is complete.
    pub fn next_frame(&mut self) -> Result<Option<&'a [u8]>, FrameError> {
        match peek_frame(self.rest(), self.limit)? {
            Peek::Complete(payload) => {
                self.consumed += HEADER_LENGTH + payload.len();
                Ok(Some(payload))
            }
            Peek::Missing(_) => Ok(None),
        }
    }

    /// Bytes of all frames given so far; the caller drops them from the buffer when done.
    pub fn consumed(&self) -> usize {
        self.consumed
    }

    /// The least number of bytes that the next frame still needs; 0 if it is complete.
    pub fn missing(&self) -> Result<usize, FrameError> {
        Ok(match peek_frame(self.rest(), self.limit)? {
            Peek::Complete(_) => 0,
            Peek::Missing(count) => count,
        })
    }

    fn rest(&self) -> &'a [u8] {
        self.buffer.get(self.consumed..).unwrap_or_default()
    }
}

/// Appends a frame with this payload, for the handshake and for monitors.
pub fn encode_frame(out: &mut BytesMut, payload: &[u8]) -> Result<(), CodecError> {
    write_frame(out, |out| {
        out.put_slice(payload);
        Ok(())
    })
}

/// Appends a frame with the payload that `write` appends; on an error `out` is as before.
pub(super) fn write_frame(
    out: &mut BytesMut,
    write: impl FnOnce(&mut BytesMut) -> Result<(), CodecError>,
) -> Result<(), CodecError> {
    write_frame_start(out, 0, write)
}

/// As [`write_frame`], for a payload of which more bytes will follow.
pub(super) fn write_frame_start(
    out: &mut BytesMut,
    following: usize,
    write: impl FnOnce(&mut BytesMut) -> Result<(), CodecError>,
) -> Result<(), CodecError> {
    let start = out.len();
    out.put_bytes(0, HEADER_LENGTH);
    let written =
        write(out).and_then(|()| frame_header(out.len() - start - HEADER_LENGTH + following));
    match written {
        Ok(header) => {
            if let Some(place) = out.get_mut(start..start + HEADER_LENGTH) {
                place.copy_from_slice(&header);
            }
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// The header of a frame with a payload of this length.
fn frame_header(length: usize) -> Result<[u8; HEADER_LENGTH], CodecError> {
    match u32::try_from(length) {
        Ok(length) => Ok(length.to_be_bytes()),
        Err(_) => Err(CodecError::MessageTooLong { length }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> BytesMut {
        let mut out = BytesMut::new();
        for payload in [&b"first"[..], b"", &[7; 300]] {
            encode_frame(&mut out, payload).unwrap();
        }
        out
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut stream = stream();
        let mut frames = Frames::new(&stream, 300);
        assert_eq!(frames.next_frame(), Ok(Some(&b"first"[..])));
        assert_eq!(frames.next_frame(), Ok(Some(&b""[..])));
        assert_eq!(frames.missing(), Ok(0));
        assert_eq!(frames.next_frame(), Ok(Some(&[7; 300][..])));
        assert_eq!(frames.next_frame(), Ok(None));
        assert_eq!((frames.consumed(), frames.missing()), (stream.len(), Ok(4)));

        assert_eq!(split_frame(&mut stream, 300), Ok(Some(Bytes::from_static(b"first"))));
        assert_eq!(split_frame(&mut stream, 300), Ok(Some(Bytes::new())));
        assert_eq!(split_frame(&mut stream, 300), Ok(Some(Bytes::from(vec![7; 300]))));
        assert_eq!(split_frame(&mut stream, 300), Ok(None));
        assert!(stream.is_empty());
    }

    #[test]
    fn a_frame_cut_at_every_byte_waits_for_the_rest() {
        let stream = stream();
        for length in 0..stream.len() {
            let mut frames = Frames::new(&stream[..length], 300);
            while frames.next_frame().unwrap().is_some() {}
            let missing = frames.missing().unwrap();
            assert!(missing > 0 && length + missing <= stream.len());
            let mut again = Frames::new(&stream[..length + missing], 300);
            while again.next_frame().unwrap().is_some() {}
            assert!(again.consumed() > frames.consumed() || missing <= HEADER_LENGTH);
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_by_its_header_alone() {
        let error = Err(FrameError::TooLong { length: 1000, limit: 999 });
        let header = 1000_u32.to_be_bytes();
        assert_eq!(peek_frame(&header, 999), error);
        assert_eq!(split_frame(&mut BytesMut::from(&header[..]), 999), error.map(|_| None));
        assert_eq!(peek_frame(&header, 1000), Ok(Peek::Missing(1000)));
        assert_eq!(
            peek_frame(b"GET /", 1 << 30).map(drop),
            Err(FrameError::TooLong { length: u32::from_be_bytes(*b"GET "), limit: 1 << 30 })
        );
    }

    #[test]
    fn a_failed_message_leaves_no_trace() {
        let mut out = BytesMut::from(&b"before"[..]);
        let error = CodecError::NotEncodable { kind: "instance" };
        let result = write_frame(&mut out, |out| {
            out.put_slice(b"half");
            Err(error.clone())
        });
        assert_eq!((result, &out[..]), (Err(error), &b"before"[..]));
    }
}
