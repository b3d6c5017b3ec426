//! Numbers and strings in a stream of bytes.

use std::io::{ErrorKind, Read};

use crc::{Digest, Table};

use crate::lzf::decompress;
use crate::{RdbError, sum};

/// Reads from a file, or from a value's bytes.
pub struct Input<R> {
    source: R,
    /// Number of bytes that were read.
    position: u64,
    sum: Option<Digest<'static, u64, Table<16>>>,
    /// Bytes that further compressed strings may have.
    decompressed_left: u64,
}

/// A length, or a mark of another encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Bytes(u64),
    Special(u8),
}

impl<R: Read> Input<R> {
    /// Reads bytes without a sum of their own.
    pub fn new(source: R) -> Input<R> {
        Input { source, position: 0, sum: None, decompressed_left: u64::MAX }
    }

    /// The same, refusing compressed strings that have more bytes than this, together. A byte of
    /// them can stand for 88.
    #[must_use]
    pub fn decompressing(self, bytes_max: u64) -> Input<R> {
        Input { decompressed_left: bytes_max, ..self }
    }

    /// Reads a file, whose sum stands at its end.
    pub(crate) fn summed(source: R) -> Input<R> {
        Input { sum: Some(sum::begin()), ..Input::new(source) }
    }

    /// Number of bytes that were read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The sum of what was read.
    pub(crate) fn sum(&self) -> Option<u64> {
        self.sum.clone().map(|sum| sum.finalize())
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes)?;
        self.position += N as u64;
        if let Some(sum) = &mut self.sum {
            sum.update(&bytes);
        }
        Ok(bytes)
    }

    /// So many bytes. No more memory is taken than there are bytes.
    pub(crate) fn bytes(&mut self, count: u64) -> Result<Vec<u8>, RdbError> {
        let mut bytes = Vec::new();
        let read = self.source.by_ref().take(count).read_to_end(&mut bytes)?;
        self.position += read as u64;
        if (read as u64) < count {
            return Err(RdbError::Io(ErrorKind::UnexpectedEof.into()));
        }
        if let Some(sum) = &mut self.sum {
            sum.update(&bytes);
        }
        Ok(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, RdbError> {
        self.fixed().map(|[byte]| byte)
    }

    pub(crate) fn u64_le(&mut self) -> Result<u64, RdbError> {
        self.fixed().map(u64::from_le_bytes)
    }

    fn length_or_mark(&mut self) -> Result<Length, RdbError> {
        let first = self.byte()?;
        let low = u64::from(first & 0x3f);
        Ok(match (first >> 6, first) {
            (0, _) => Length::Bytes(low),
            (1, _) => Length::Bytes(low << 8 | u64::from(self.byte()?)),
            (2, 0x80) => Length::Bytes(u32::from_be_bytes(self.fixed()?).into()),
            (2, 0x81) => Length::Bytes(u64::from_be_bytes(self.fixed()?)),
            (3, _) => Length::Special(first & 0x3f),
            _ => return Err(RdbError::Damaged("a length of no known encoding")),
        })
    }

    /// A number of elements, or of bytes.
    pub(crate) fn length(&mut self) -> Result<u64, RdbError> {
        match self.length_or_mark()? {
            Length::Bytes(length) => Ok(length),
            Length::Special(_) => Err(RdbError::Damaged("an encoding where a length must be")),
        }
    }

    /// A string in any of its encodings.
    ///
    /// # Errors
    /// The input ends, or is damaged.
    pub fn string(&mut self) -> Result<Vec<u8>, RdbError> {
        let number = |number: i64| Ok(number.to_string().into_bytes());
        match self.length_or_mark()? {
            Length::Bytes(count) => self.bytes(count),
            Length::Special(0) => number(i8::from_le_bytes(self.fixed()?).into()),
            Length::Special(1) => number(i16::from_le_bytes(self.fixed()?).into()),
            Length::Special(2) => number(i32::from_le_bytes(self.fixed()?).into()),
            Length::Special(3) => {
                let (packed, whole) = (self.length()?, self.length()?);
                let left = self.decompressed_left.checked_sub(whole);
                let too_many = RdbError::Damaged("compressed strings of too many bytes");
                self.decompressed_left = left.ok_or(too_many)?;
                let packed = self.bytes(packed)?;
                decompress(&packed, whole).ok_or(RdbError::Damaged("a compressed string"))
            }
            Length::Special(_) => Err(RdbError::Damaged("a string of no known encoding")),
        }
    }
}
