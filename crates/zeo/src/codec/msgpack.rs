//! Values in msgpack, as Python's `msgpack` package reads and writes them for ZEO.
//!
//! `bytes` is `bin` and `str` is `str`. List and tuple are both `array`, which is decoded as a
//! tuple. Numbers take the shortest form. Extension types, and map keys other than text and bytes,
//! are not used by ZEO and are refused.
//!
//! Format: the msgpack specification, `spec.md`, "Formats".

use std::borrow::Cow;

use bytes::BufMut;
use thiserror::Error;
use zodium_pickle::{Limits, Value};

use super::CodecError;

/// Deepest nesting, whatever the limits say, because decoding is recursive.
const NESTING_MAX: usize = 1000;

/// Most items that room is reserved for in advance.
const CAPACITY_MAX: usize = 4096;

/// Bytes that are not msgpack of plain data. Offsets count from the start of the message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MsgpackError {
    /// The bytes end inside a value.
    #[error("the msgpack message is cut short: more bytes are needed at byte {offset}")]
    Truncated {
        /// Where the unfinished value begins.
        offset: usize,
    },
    /// A marker of no plain type.
    #[error("msgpack type {marker:#04x} at byte {offset} is not supported")]
    UnsupportedType {
        /// The marker byte.
        marker: u8,
        /// Where it is.
        offset: usize,
    },
    /// A text value is not UTF-8.
    #[error("the msgpack text at byte {offset} is not UTF-8")]
    NotUtf8 {
        /// Where the value begins.
        offset: usize,
    },
    /// A map key is neither text nor bytes.
    #[error("the msgpack map key at byte {offset} is neither text nor bytes")]
    InvalidKey {
        /// Where the key begins.
        offset: usize,
    },
    /// Containers are nested beyond the limit.
    #[error("the msgpack message nests deeper than {limit} containers")]
    TooDeep {
        /// The limit that was met.
        limit: usize,
    },
    /// More values than the limit.
    #[error("the msgpack message holds more than {limit} values")]
    TooManyNodes {
        /// The limit that was met.
        limit: usize,
    },
}

/// Decodes the value at the beginning of `bytes`; gives it and its length in bytes. Only the
/// nesting and the number of nodes of `limits` apply.
pub fn decode<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Value<'a>, usize), MsgpackError> {
    let limits = Limits { nesting: limits.nesting.min(NESTING_MAX), ..*limits };
    let mut decoder = Decoder { bytes, position: 0, nodes: 0, limits };
    let value = decoder.value(0)?;
    Ok((value, decoder.position))
}

/// Appends a value.
pub fn encode(value: &Value<'_>, out: &mut impl BufMut) -> Result<(), CodecError> {
    match value {
        Value::None => out.put_u8(0xc0),
        Value::Bool(false) => out.put_u8(0xc2),
        Value::Bool(true) => out.put_u8(0xc3),
        Value::Int(number) => encode_int(*number, out)?,
        Value::Float(number) => {
            out.put_u8(0xcb);
            out.put_f64(*number);
        }
        Value::Bytes(bytes) => {
            encode_bytes_header(length_of(bytes.len())?, out);
            out.put_slice(bytes);
        }
        Value::Str(text) => encode_str(text, out)?,
        Value::List(items) | Value::Tuple(items) => {
            encode_array_header(length_of(items.len())?, out);
            for item in items {
                encode(item, out)?;
            }
        }
        Value::Dict(entries) => encode_map(entries, out)?,
        Value::BigInt(_) | Value::Global(_) | Value::Object(_) | Value::Persistent(_) => {
            return Err(CodecError::NotEncodable { kind: value.kind() });
        }
    }
    Ok(())
}

/// Appends an integer from -2^63 to 2^64 - 1.
pub(super) fn encode_int(number: i128, out: &mut impl BufMut) -> Result<(), CodecError> {
    match number {
        0..=0x7f => out.put_u8(number as u8),
        0x80..=0xff => out.put_slice(&[0xcc, number as u8]),
        0x100..=0xffff => {
            out.put_u8(0xcd);
            out.put_u16(number as u16);
        }
        0x1_0000..=0xffff_ffff => {
            out.put_u8(0xce);
            out.put_u32(number as u32);
        }
        0x1_0000_0000..=0xffff_ffff_ffff_ffff => {
            out.put_u8(0xcf);
            out.put_u64(number as u64);
        }
        -0x20..=-1 => out.put_i8(number as i8),
        -0x80..=-0x21 => {
            out.put_u8(0xd0);
            out.put_i8(number as i8);
        }
        -0x8000..=-0x81 => {
            out.put_u8(0xd1);
            out.put_i16(number as i16);
        }
        -0x8000_0000..=-0x8001 => {
            out.put_u8(0xd2);
            out.put_i32(number as i32);
        }
        -0x8000_0000_0000_0000..=-0x8000_0001 => {
            out.put_u8(0xd3);
            out.put_i64(number as i64);
        }
        _ => return Err(CodecError::NotEncodable { kind: "int beyond 64 bits" }),
    }
    Ok(())
}

/// Appends a text value.
pub(super) fn encode_str(text: &str, out: &mut impl BufMut) -> Result<(), CodecError> {
    let length = length_of(text.len())?;
    match length {
        0..=0x1f => out.put_u8(0xa0 | length as u8),
        0x20..=0xff => out.put_slice(&[0xd9, length as u8]),
        0x100..=0xffff => {
            out.put_u8(0xda);
            out.put_u16(length as u16);
        }
        _ => {
            out.put_u8(0xdb);
            out.put_u32(length);
        }
    }
    out.put_slice(text.as_bytes());
    Ok(())
}

/// Appends the header of a bytes value of this length.
pub(super) fn encode_bytes_header(length: u32, out: &mut impl BufMut) {
    match length {
        0..=0xff => out.put_slice(&[0xc4, length as u8]),
        0x100..=0xffff => {
            out.put_u8(0xc5);
            out.put_u16(length as u16);
        }
        _ => {
            out.put_u8(0xc6);
            out.put_u32(length);
        }
    }
}

/// Appends the header of an array of this length.
pub(super) fn encode_array_header(length: u32, out: &mut impl BufMut) {
    match length {
        0..=0xf => out.put_u8(0x90 | length as u8),
        0x10..=0xffff => {
            out.put_u8(0xdc);
            out.put_u16(length as u16);
        }
        _ => {
            out.put_u8(0xdd);
            out.put_u32(length);
        }
    }
}

/// A length that fits into msgpack's 32 bits.
pub(super) fn length_of(length: usize) -> Result<u32, CodecError> {
    u32::try_from(length).map_err(|_| CodecError::MessageTooLong { length })
}

fn encode_map(entries: &[(Value<'_>, Value<'_>)], out: &mut impl BufMut) -> Result<(), CodecError> {
    let length = length_of(entries.len())?;
    match length {
        0..=0xf => out.put_u8(0x80 | length as u8),
        0x10..=0xffff => {
            out.put_u8(0xde);
            out.put_u16(length as u16);
        }
        _ => {
            out.put_u8(0xdf);
            out.put_u32(length);
        }
    }
    for (key, value) in entries {
        // The peer would refuse the message, and end the connection.
        if !matches!(key, Value::Str(_) | Value::Bytes(_)) {
            return Err(CodecError::NotEncodable { kind: "dict with keys neither str nor bytes" });
        }
        encode(key, out)?;
        encode(value, out)?;
    }
    Ok(())
}

struct Decoder<'a> {
    bytes: &'a [u8],
    position: usize,
    nodes: usize,
    limits: Limits,
}

impl<'a> Decoder<'a> {
    fn value(&mut self, depth: usize) -> Result<Value<'a>, MsgpackError> {
        self.nodes += 1;
        if self.nodes > self.limits.nodes {
            return Err(MsgpackError::TooManyNodes { limit: self.limits.nodes });
        }
        let offset = self.position;
        let [marker] = self.array(offset)?;
        Ok(match marker {
            0x00..=0x7f => Value::from(marker),
            0x80..=0x8f => self.map((marker & 0xf).into(), depth)?,
            0x90..=0x9f => self.items((marker & 0xf).into(), depth)?,
            0xa0..=0xbf => self.text((marker & 0x1f).into(), offset)?,
            0xc0 => Value::None,
            0xc2 => Value::Bool(false),
            0xc3 => Value::Bool(true),
            0xc4..=0xc6 => {
                let length = self.length(marker - 0xc4, offset)?;
                Value::Bytes(Cow::Borrowed(self.take(length, offset)?))
            }
            0xca => Value::Float(f32::from_be_bytes(self.array(offset)?).into()),
            0xcb => Value::Float(f64::from_be_bytes(self.array(offset)?)),
            0xcc => Value::from(u8::from_be_bytes(self.array(offset)?)),
            0xcd => Value::from(u16::from_be_bytes(self.array(offset)?)),
            0xce => Value::from(u32::from_be_bytes(self.array(offset)?)),
            0xcf => Value::from(u64::from_be_bytes(self.array(offset)?)),
            0xd0 => Value::Int(i8::from_be_bytes(self.array(offset)?).into()),
            0xd1 => Value::Int(i16::from_be_bytes(self.array(offset)?).into()),
            0xd2 => Value::from(i32::from_be_bytes(self.array(offset)?)),
            0xd3 => Value::from(i64::from_be_bytes(self.array(offset)?)),
            0xd9..=0xdb => {
                let length = self.length(marker - 0xd9, offset)?;
                self.text(length, offset)?
            }
            0xdc | 0xdd => {
                let length = self.length(marker - 0xdb, offset)?;
                self.items(length, depth)?
            }
            0xde | 0xdf => {
                let length = self.length(marker - 0xdd, offset)?;
                self.map(length, depth)?
            }
            0xe0..=0xff => Value::Int(i8::from_be_bytes([marker]).into()),
            0xc1 | 0xc7..=0xc9 | 0xd4..=0xd8 => {
                return Err(MsgpackError::UnsupportedType { marker, offset });
            }
        })
    }

    fn items(&mut self, length: usize, depth: usize) -> Result<Value<'a>, MsgpackError> {
        let mut items = Vec::with_capacity(self.capacity(length, depth)?);
        for _ in 0..length {
            items.push(self.value(depth + 1)?);
        }
        Ok(Value::Tuple(items))
    }

    fn map(&mut self, length: usize, depth: usize) -> Result<Value<'a>, MsgpackError> {
        let mut entries = Vec::with_capacity(self.capacity(length, depth)?);
        for _ in 0..length {
            let offset = self.position;
            let key = self.value(depth + 1)?;
            if !matches!(key, Value::Str(_) | Value::Bytes(_)) {
                return Err(MsgpackError::InvalidKey { offset });
            }
            entries.push((key, self.value(depth + 1)?));
        }
        Ok(Value::Dict(entries))
    }

    /// The number of items to reserve room for in a container of this declared length. Each item
    /// takes at least a byte.
    fn capacity(&self, length: usize, depth: usize) -> Result<usize, MsgpackError> {
        if depth >= self.limits.nesting {
            return Err(MsgpackError::TooDeep { limit: self.limits.nesting });
        }
        if length > self.bytes.len() - self.position {
            return Err(MsgpackError::Truncated { offset: self.position });
        }
        if length > self.limits.nodes - self.nodes {
            return Err(MsgpackError::TooManyNodes { limit: self.limits.nodes });
        }
        Ok(length.min(CAPACITY_MAX))
    }

    fn text(&mut self, length: usize, offset: usize) -> Result<Value<'a>, MsgpackError> {
        match std::str::from_utf8(self.take(length, offset)?) {
            Ok(text) => Ok(Value::Str(Cow::Borrowed(text))),
            Err(_) => Err(MsgpackError::NotUtf8 { offset }),
        }
    }

    /// A length field of 1, 2 or 4 bytes: 2 to the power of `width`.
    fn length(&mut self, width: u8, offset: usize) -> Result<usize, MsgpackError> {
        Ok(match width {
            0 => u8::from_be_bytes(self.array(offset)?).into(),
            1 => u16::from_be_bytes(self.array(offset)?).into(),
            _ => u32::from_be_bytes(self.array(offset)?) as usize,
        })
    }

    fn take(&mut self, length: usize, offset: usize) -> Result<&'a [u8], MsgpackError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let taken = rest.get(..length).ok_or(MsgpackError::Truncated { offset })?;
        self.position += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, offset: usize) -> Result<[u8; N], MsgpackError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let chunk = rest.first_chunk().ok_or(MsgpackError::Truncated { offset })?;
        self.position += N;
        Ok(*chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: &Value<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode(value, &mut out).unwrap();
        out
    }

    fn decoded(bytes: &[u8]) -> Result<Value<'_>, MsgpackError> {
        decode(bytes, &Limits::PLAIN).map(|(value, _)| value)
    }

    // `msgpack.packb(value, use_bin_type=True)` of msgpack 1.2.
    #[test]
    fn integers_take_the_form_that_python_gives_them() {
        let goldens: [(i128, &[u8]); 22] = [
            (0, b"\0"),
            (127, b"\x7f"),
            (128, b"\xcc\x80"),
            (255, b"\xcc\xff"),
            (256, b"\xcd\x01\0"),
            (65_535, b"\xcd\xff\xff"),
            (65_536, b"\xce\0\x01\0\0"),
            (0xffff_ffff, b"\xce\xff\xff\xff\xff"),
            (1 << 32, b"\xcf\0\0\0\x01\0\0\0\0"),
            (1 << 63, b"\xcf\x80\0\0\0\0\0\0\0"),
            (u64::MAX as i128, b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
            (-1, b"\xff"),
            (-32, b"\xe0"),
            (-33, b"\xd0\xdf"),
            (-128, b"\xd0\x80"),
            (-129, b"\xd1\xff\x7f"),
            (-32_768, b"\xd1\x80\0"),
            (-32_769, b"\xd2\xff\xff\x7f\xff"),
            (-(1 << 31), b"\xd2\x80\0\0\0"),
            (-(1 << 31) - 1, b"\xd3\xff\xff\xff\xff\x7f\xff\xff\xff"),
            (-(1 << 40), b"\xd3\xff\xff\xff\0\0\0\0\0"),
            (-(1 << 63), b"\xd3\x80\0\0\0\0\0\0\0"),
        ];
        for (number, golden) in goldens {
            assert_eq!(encoded(&Value::Int(number)), golden, "{number}");
            assert_eq!(decoded(golden), Ok(Value::Int(number)));
        }
        for number in [1 << 64, -(1 << 63) - 1] {
            assert!(encode(&Value::Int(number), &mut Vec::new()).is_err());
        }
    }

    #[test]
    fn lengths_take_the_form_that_python_gives_them() {
        let bytes = vec![b'x'; 70_000];
        let text = std::str::from_utf8(&bytes).unwrap();
        let none = vec![Value::None; 70_000];
        let entry = (Value::from("k"), Value::None);
        let entries = vec![entry; 70_000];
        let heads: [(usize, [&[u8]; 4]); 8] = [
            (0, [b"\xc4\0", b"\xa0", b"\x90", b"\x80"]),
            (15, [b"\xc4\x0f", b"\xaf", b"\x9f", b"\x8f"]),
            (16, [b"\xc4\x10", b"\xb0", b"\xdc\0\x10", b"\xde\0\x10"]),
            (31, [b"\xc4\x1f", b"\xbf", b"\xdc\0\x1f", b"\xde\0\x1f"]),
            (32, [b"\xc4\x20", b"\xd9\x20", b"\xdc\0\x20", b"\xde\0\x20"]),
            (255, [b"\xc4\xff", b"\xd9\xff", b"\xdc\0\xff", b"\xde\0\xff"]),
            (256, [b"\xc5\x01\0", b"\xda\x01\0", b"\xdc\x01\0", b"\xde\x01\0"]),
            (65_536, [b"\xc6\0\x01\0\0", b"\xdb\0\x01\0\0", b"\xdd\0\x01\0\0", b"\xdf\0\x01\0\0"]),
        ];
        for (length, [bin, str, array, map]) in heads {
            for (value, head) in [
                (Value::from(&bytes[..length]), bin),
                (Value::from(&text[..length]), str),
                (Value::Tuple(none[..length].to_vec()), array),
                (Value::Dict(entries[..length].to_vec()), map),
            ] {
                let message = encoded(&value);
                assert_eq!(message[..head.len()], *head, "{length}");
                assert_eq!(decode(&message, &Limits::PLAIN), Ok((value, message.len())));
            }
        }
    }

    #[test]
    fn other_values_take_the_form_that_python_gives_them() {
        for (value, golden) in [
            (Value::None, &b"\xc0"[..]),
            (false.into(), b"\xc2"),
            (true.into(), b"\xc3"),
            (1.5.into(), b"\xcb\x3f\xf8\0\0\0\0\0\0"),
        ] {
            assert_eq!(encoded(&value), golden);
            assert_eq!(decoded(golden), Ok(value));
        }
        assert_eq!(decoded(b"\xca\x3f\xc0\0\0"), Ok(1.5.into()));
        assert_eq!(encoded(&Value::list([1.into()])), encoded(&Value::tuple([1.into()])));
    }

    #[test]
    fn what_does_not_occur_on_this_wire_is_refused() {
        let unsupported = |marker| Err(MsgpackError::UnsupportedType { marker, offset: 0 });
        for marker in [0xc1, 0xc7, 0xc8, 0xc9, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8] {
            assert_eq!(decoded(&[marker, 0, 0, 0, 0, 0, 0]), unsupported(marker));
        }
        assert_eq!(decoded(b"\x81\x01\x02"), Err(MsgpackError::InvalidKey { offset: 1 }));
        assert_eq!(decoded(b"\x91\xa1\xff"), Err(MsgpackError::NotUtf8 { offset: 1 }));
    }

    #[test]
    fn huge_declared_lengths_are_truncation() {
        for head in [
            &b"\xc6\xff\xff\xff\xff"[..],
            b"\xdb\xff\xff\xff\xff",
            b"\xdd\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff",
            b"\xdc\xff\xff",
            b"\x9f",
        ] {
            let result = decoded(head);
            assert!(matches!(result, Err(MsgpackError::Truncated { .. })), "{result:?}");
        }
    }

    #[test]
    fn limits_are_kept() {
        let deep = |depth| [b"\x91".repeat(depth), b"\xc0".to_vec()].concat();
        assert!(decoded(&deep(100)).is_ok());
        assert_eq!(decoded(&deep(101)), Err(MsgpackError::TooDeep { limit: 100 }));
        let limits = Limits { nesting: usize::MAX, ..Limits::PLAIN };
        let result = decode(&b"\x91".repeat(100_000), &limits).map(drop);
        assert_eq!(result, Err(MsgpackError::TooDeep { limit: 1000 }));
        let limits = Limits { nodes: 4, ..Limits::PLAIN };
        assert!(decode(b"\x93\xc0\xc0\xc0", &limits).is_ok());
        let result = decode(b"\x94\xc0\xc0\xc0\xc0", &limits).map(drop);
        assert_eq!(result, Err(MsgpackError::TooManyNodes { limit: 4 }));
    }
}
