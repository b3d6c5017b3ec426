//! Finds the end of the next message in a stream of bytes.
//!
//! Messages have no length before them, so their structure is walked. One counter is enough: the
//! number of values that are still to come. The walk goes on where it stopped when more bytes
//! have arrived, so a message that arrives in many pieces is walked once.
//!
//! `rmp::decode::MessageLen` does not do it: it panics at extension types.

use rmp::Marker;
use thiserror::Error;

/// Longest message, as in NEO/py, whose buffer has this limit.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Most values in a message. A transaction has fewer than 2^21 objects, and lists them once.
pub const MESSAGE_VALUES_MAX: usize = 1 << 22;

/// First byte of a message: an array of 3 items.
const MESSAGE_HEAD: u8 = 0x93;

/// The bytes of a whole message, within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a>(&'a [u8]);

/// The beginning of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan<'a> {
    /// A whole message.
    Complete(Frame<'a>),
    /// A part of a message, or nothing: call again when there are so many bytes of it.
    Need(usize),
}

/// Why a stream cannot be split into messages; the connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The stream does not go on with a message.
    #[error("a message of NEO begins with 0x93, not with {byte:#04x}; close the connection")]
    NotAMessage {
        /// The first byte.
        byte: u8,
    },
    /// A byte that is no msgpack.
    #[error("the message has the unused msgpack marker 0xc1 at byte {offset}")]
    UnusedMarker {
        /// Where it is, from the beginning of the message.
        offset: usize,
    },
    /// A message that is too long.
    #[error("the message has at least {length} bytes; at most {limit} are accepted")]
    TooLong {
        /// The length that it has at least.
        length: u64,
        /// The limit that it exceeds.
        limit: usize,
    },
    /// A message of too many values.
    #[error("the message has more than {MESSAGE_VALUES_MAX} values")]
    TooManyValues,
}

/// Splits a stream into messages.
#[derive(Clone, Debug)]
pub struct Scanner {
    limit: usize,
    /// Bytes of the message walked so far.
    offset: usize,
    /// Values of the message that have not been walked.
    pending: u64,
    /// Values of the message known so far.
    values: u64,
}

/// One value: its head, its own bytes, and the values inside it.
struct Token {
    /// Bytes of marker and length.
    head: usize,
    /// Bytes that follow.
    body: u64,
    /// Values that follow.
    items: u64,
}

impl<'a> Frame<'a> {
    /// The bytes of the message.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl Default for Scanner {
    fn default() -> Scanner {
        Scanner::new(MESSAGE_BYTES_MAX)
    }
}

impl Scanner {
    /// Creates a scanner at the beginning of a message; `limit` is the longest one accepted.
    pub fn new(limit: usize) -> Scanner {
        Scanner { limit, offset: 0, pending: 1, values: 1 }
    }

    /// Looks for the end of the message at the beginning of `buffer`.
    ///
    /// After [`Scan::Need`], `buffer` must begin with the same bytes again. After
    /// [`Scan::Complete`], it must begin after that message.
    pub fn scan<'a>(&mut self, buffer: &'a [u8]) -> Result<Scan<'a>, ScanError> {
        if let Some(byte) = buffer.first().copied().filter(|byte| *byte != MESSAGE_HEAD) {
            return Err(ScanError::NotAMessage { byte });
        }
        while self.pending > 0 {
            let rest = buffer.get(self.offset..).unwrap_or_default();
            let token = match token(rest) {
                Some(token) => token.ok_or(ScanError::UnusedMarker { offset: self.offset })?,
                None => return self.need(head_length(rest) as u64),
            };
            let length = token.head as u64 + token.body;
            if (rest.len() as u64) < length {
                return self.need(length);
            }
            self.values = self.values.saturating_add(token.items);
            if self.values > MESSAGE_VALUES_MAX as u64 {
                return Err(ScanError::TooManyValues);
            }
            self.pending = self.pending - 1 + token.items;
            // The value is in the buffer, so its length is no larger than memory.
            self.offset += length as usize;
            self.need(0)?;
        }
        let frame = Frame(buffer.get(..self.offset).unwrap_or_default());
        (self.offset, self.pending, self.values) = (0, 1, 1);
        Ok(Scan::Complete(frame))
    }

    /// Asks for the bytes of the next value, and at least one for each after it.
    fn need<'a>(&self, value: u64) -> Result<Scan<'a>, ScanError> {
        let after = self.pending.saturating_sub(u64::from(value > 0));
        let length = (self.offset as u64).saturating_add(value).saturating_add(after);
        if length > self.limit as u64 {
            return Err(ScanError::TooLong { length, limit: self.limit });
        }
        Ok(Scan::Need(length as usize))
    }
}

/// The value at the beginning of `rest`: `None` if its head is not whole, `Some(None)` if it is no
/// value.
fn token(rest: &[u8]) -> Option<Option<Token>> {
    let marker = Marker::from_u8(*rest.first()?);
    let head = head_length(rest);
    let length = number(rest.get(1..head)?);
    let (body, items) = match marker {
        Marker::Reserved => return Some(None),
        Marker::FixPos(_) | Marker::FixNeg(_) => (0, 0),
        Marker::Null | Marker::False | Marker::True => (0, 0),
        Marker::U8 | Marker::I8 => (1, 0),
        Marker::U16 | Marker::I16 => (2, 0),
        Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
        Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
        Marker::FixStr(length) => (length.into(), 0),
        Marker::Str8 | Marker::Str16 | Marker::Str32 => (length, 0),
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => (length, 0),
        Marker::FixArray(items) => (0, items.into()),
        Marker::Array16 | Marker::Array32 => (0, length),
        Marker::FixMap(entries) => (0, 2 * u64::from(entries)),
        Marker::Map16 | Marker::Map32 => (0, 2 * length),
        // Extension types have a byte for the number of the type.
        Marker::FixExt1 => (1 + 1, 0),
        Marker::FixExt2 => (1 + 2, 0),
        Marker::FixExt4 => (1 + 4, 0),
        Marker::FixExt8 => (1 + 8, 0),
        Marker::FixExt16 => (1 + 16, 0),
        Marker::Ext8 | Marker::Ext16 | Marker::Ext32 => (1 + length, 0),
    };
    Some(Some(Token { head, body, items }))
}

/// Length of the marker and of the length that follows it.
fn head_length(rest: &[u8]) -> usize {
    match rest.first().map(|byte| Marker::from_u8(*byte)) {
        Some(Marker::Str8 | Marker::Bin8 | Marker::Ext8) => 2,
        Some(Marker::Str16 | Marker::Bin16 | Marker::Ext16) => 3,
        Some(Marker::Array16 | Marker::Map16) => 3,
        Some(Marker::Str32 | Marker::Bin32 | Marker::Ext32) => 5,
        Some(Marker::Array32 | Marker::Map32) => 5,
        _ => 1,
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: &[u8] = b"\x93\x03\x02\x90";

    #[test]
    fn messages_are_split_one_after_the_other() {
        let stream = [PING, b"\x93\xcd\x01\0\xcd\x80\x02\x90", PING].concat();
        let mut scanner = Scanner::default();
        assert_eq!(scanner.scan(&stream), Ok(Scan::Complete(Frame(PING))));
        assert_eq!(scanner.scan(&stream[4..]), Ok(Scan::Complete(Frame(&stream[4..12]))));
        assert_eq!(scanner.scan(&stream[12..]), Ok(Scan::Complete(Frame(PING))));
        assert_eq!(scanner.scan(b""), Ok(Scan::Need(1)));
        for _ in 0..MESSAGE_VALUES_MAX {
            assert_eq!(scanner.scan(PING), Ok(Scan::Complete(Frame(PING))));
        }
    }

    #[test]
    fn the_walk_goes_on_where_it_stopped() {
        let message = [&b"\x93\x05\x20\x93\xc4\x64"[..], &[7; 100], b"\xd4\x04\x02\xc0"].concat();
        let mut scanner = Scanner::default();
        assert_eq!(scanner.scan(b"\x93"), Ok(Scan::Need(4)));
        assert_eq!(scanner.scan(&message[..4]), Ok(Scan::Need(7)));
        assert_eq!(scanner.scan(&message[..7]), Ok(Scan::Need(6 + 100 + 2)));
        assert_eq!(scanner.scan(&message[..108]), Ok(Scan::Need(110)));
        assert_eq!(scanner.offset, 106);
        assert_eq!(scanner.scan(&message), Ok(Scan::Complete(Frame(&message))));
    }

    #[test]
    fn a_stream_of_something_else_is_refused_by_its_first_byte() {
        assert_eq!(
            Scanner::default().scan(b"\x92\xa3NEO\x05"),
            Err(ScanError::NotAMessage { byte: 0x92 })
        );
        assert_eq!(
            Scanner::default().scan(b"\x93\x01\xc1"),
            Err(ScanError::UnusedMarker { offset: 2 })
        );
    }

    #[test]
    fn lengths_beyond_the_limits_are_refused_by_their_head_alone() {
        let scan = |bytes: &[u8]| Scanner::new(1000).scan(bytes).map(drop);
        let too_long = |length| Err(ScanError::TooLong { length, limit: 1000 });
        assert_eq!(scan(b"\x93\0\0\x91\xc5\x03\xe2"), too_long(4 + 3 + 994));
        assert_eq!(scan(b"\x93\0\0\x91\xc5\x03\xe1"), Ok(()));
        assert_eq!(scan(b"\x93\0\0\xdc\x03\xe3"), too_long(6 + 995));
        assert_eq!(scan(b"\x93\0\0\xdc\x03\xe2"), Ok(()));
        for lengths in
            [&b"\xc6\xff\xff\xff\xff"[..], b"\xc9\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"]
        {
            let message = [b"\x93\0\0\x91", lengths].concat();
            assert!(matches!(scan(&message), Err(ScanError::TooLong { .. })));
        }
        for lengths in [&b"\xdd\xff\xff\xff\xff"[..], b"\xdf\xff\xff\xff\xff", b"\xdd\0\x40\0\0"] {
            let message = [b"\x93\0\0", lengths].concat();
            assert_eq!(scan(&message), Err(ScanError::TooManyValues));
        }
    }
}
