//! Takes values of msgpack off the front of a message.

use std::borrow::Cow;

use rmp::Marker;
use rmp::decode::{self, NumValueReadError, ValueReadError};

use super::mismatch::Mismatch;

/// A cursor over a whole message.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

/// The value of an extension type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extension<'a> {
    pub(crate) kind: i8,
    pub(crate) payload: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Reader<'a> {
        Reader { rest: message, length: message.len() }
    }

    /// Bytes taken so far.
    pub(crate) fn offset(&self) -> usize {
        self.length - self.rest.len()
    }

    /// Bytes not taken yet.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The type of the next value; `None` at the end.
    pub(crate) fn peek(&self) -> Option<Marker> {
        self.rest.first().map(|byte| Marker::from_u8(*byte))
    }

    /// Whether the next value is of type `bin`.
    pub(crate) fn is_bytes(&self) -> bool {
        matches!(self.peek(), Some(Marker::Bin8 | Marker::Bin16 | Marker::Bin32))
    }

    /// Takes nil, if it is next.
    pub(crate) fn take_nil(&mut self) -> bool {
        match self.rest.split_first() {
            Some((&0xc0, rest)) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes an integer from `least` to `most`.
    pub(crate) fn int<T>(&mut self, expected: &'static str) -> Result<T, Mismatch>
    where
        T: TryFrom<i128>,
    {
        let before = self.clone();
        let mismatch = |found| before.mismatch(expected, found);
        // Msgpack's integers are from -2^63 to 2^64 - 1.
        let number = match self.peek() {
            Some(Marker::U64) => decode::read_u64(&mut self.rest).map(i128::from).map_err(found),
            _ => decode::read_int::<i64, _>(&mut self.rest).map(i128::from).map_err(found_int),
        };
        let number = number.map_err(mismatch)?;
        T::try_from(number)
            .map_err(|_| before.mismatch(expected, format!("the number {number}").into()))
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Mismatch> {
        self.take("a bool", decode::read_bool)
    }

    pub(crate) fn float(&mut self) -> Result<f64, Mismatch> {
        self.take("a float of 64 bits", decode::read_f64)
    }

    /// Takes a value of type `bin`.
    pub(crate) fn bytes(&mut self, expected: &'static str) -> Result<&'a [u8], Mismatch> {
        let before = self.clone();
        let length = self.take(expected, decode::read_bin_len)?;
        self.split(length).ok_or_else(|| before.cut(expected))
    }

    /// Takes a value of type `bin` of `N` bytes.
    pub(crate) fn array<const N: usize>(
        &mut self,
        expected: &'static str,
    ) -> Result<[u8; N], Mismatch> {
        let before = self.clone();
        let bytes = self.bytes(expected)?;
        bytes
            .try_into()
            .map_err(|_| before.mismatch(expected, format!("{} bytes", bytes.len()).into()))
    }

    /// Takes a value of type `bin` that holds text.
    pub(crate) fn text(&mut self) -> Result<&'a str, Mismatch> {
        let before = self.clone();
        let bytes = self.bytes("text as bytes")?;
        std::str::from_utf8(bytes)
            .map_err(|_| before.mismatch("text as bytes", "bytes that are not UTF-8".into()))
    }

    /// Takes a value of msgpack's type `str`.
    pub(crate) fn msgpack_text(&mut self) -> Result<&'a str, Mismatch> {
        let before = self.clone();
        let length = self.take("text", decode::read_str_len)?;
        let bytes = self.split(length).ok_or_else(|| before.cut("text"))?;
        std::str::from_utf8(bytes)
            .map_err(|_| before.mismatch("text", "bytes that are not UTF-8".into()))
    }

    /// Takes the head of an array, of which at least a byte for each item is there.
    pub(crate) fn array_length(&mut self) -> Result<usize, Mismatch> {
        let before = self.clone();
        let length = self.take("an array", decode::read_array_len)? as usize;
        if length > self.remaining() { Err(before.cut("an array")) } else { Ok(length) }
    }

    /// Takes the head of an array of `expected` items.
    pub(crate) fn fixed_array(&mut self, expected: usize) -> Result<(), Mismatch> {
        let before = self.clone();
        let array = || Cow::Owned(format!("an array of {expected}"));
        let length =
            self.array_length().map_err(|mismatch| Mismatch { expected: array(), ..mismatch })?;
        if length != expected {
            let found = format!("an array of {length}").into();
            return Err(before.mismatch(array(), found));
        }
        Ok(())
    }

    /// Takes the head of a map, of which at least two bytes for each entry are there.
    pub(crate) fn map_length(&mut self) -> Result<usize, Mismatch> {
        let before = self.clone();
        let length = self.take("a map", decode::read_map_len)? as usize;
        if length > self.remaining() / 2 { Err(before.cut("a map")) } else { Ok(length) }
    }

    /// Takes a value of an extension type.
    pub(crate) fn extension(&mut self, expected: &'static str) -> Result<Extension<'a>, Mismatch> {
        let before = self.clone();
        let meta = self.take(expected, decode::read_ext_meta)?;
        let payload = self.split(meta.size).ok_or_else(|| before.cut(expected))?;
        Ok(Extension { kind: meta.typeid, payload })
    }

    /// The next value is not the expected one.
    #[cold]
    pub(crate) fn mismatch(
        &self,
        expected: impl Into<Cow<'static, str>>,
        found: Cow<'static, str>,
    ) -> Mismatch {
        let path = String::new();
        Mismatch { path, expected: expected.into(), found, offset: self.offset() }
    }

    fn cut(&self, expected: &'static str) -> Mismatch {
        self.mismatch(expected, END.into())
    }

    fn split(&mut self, length: u32) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length as usize)?;
        self.rest = rest;
        Some(taken)
    }

    fn take<T>(
        &mut self,
        expected: &'static str,
        read: impl FnOnce(&mut &'a [u8]) -> Result<T, ValueReadError>,
    ) -> Result<T, Mismatch> {
        let mut rest = self.rest;
        let value = read(&mut rest).map_err(|error| self.mismatch(expected, found(error)))?;
        self.rest = rest;
        Ok(value)
    }
}

const END: &str = "the end of the message";

/// A length that fits into msgpack's 32 bits. The writer refuses larger messages in the end.
pub(crate) fn length_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn found(error: ValueReadError) -> Cow<'static, str> {
    match error {
        ValueReadError::TypeMismatch(marker) => describe(marker).into(),
        ValueReadError::InvalidMarkerRead(_) | ValueReadError::InvalidDataRead(_) => END.into(),
    }
}

fn found_int(error: NumValueReadError) -> Cow<'static, str> {
    match error {
        NumValueReadError::TypeMismatch(marker) => describe(marker).into(),
        NumValueReadError::OutOfRange => "a number beyond 64 bits".into(),
        NumValueReadError::InvalidMarkerRead(_) | NumValueReadError::InvalidDataRead(_) => {
            END.into()
        }
    }
}

/// The type of a value, for messages.
fn describe(marker: Marker) -> &'static str {
    match marker {
        Marker::Null => "nil",
        Marker::False | Marker::True => "a bool",
        Marker::F32 | Marker::F64 => "a float",
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => "bytes",
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => "msgpack text",
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => "an array",
        Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => "a map",
        Marker::Ext8 | Marker::Ext16 | Marker::Ext32 => "an extension type",
        Marker::FixExt1 | Marker::FixExt2 | Marker::FixExt4 => "an extension type",
        Marker::FixExt8 | Marker::FixExt16 => "an extension type",
        Marker::Reserved => "the unused marker 0xc1",
        _ => "a number",
    }
}
