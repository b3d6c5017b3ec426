//! Values of any type, in maps that the protocol leaves open.

use rmp::Marker;

use crate::wire::{Decode, Encode, Map, Mismatch, Reader, Writer};

/// Deepest nesting of values: decoding is recursive. NEO's own nest once.
pub const VALUE_NESTING_MAX: usize = 16;

/// Named values of any type, in the order of the wire.
pub type Extra<'a> = Map<&'a str, Value<'a>>;

/// A value of any type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing.
    Nil,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number of 64 bits.
    Float(f64),
    /// Bytes; text too.
    Bytes(&'a [u8]),
    /// Msgpack's text type, which NEO does not use.
    Text(&'a str),
    /// A list, tuple or set.
    Array(Vec<Value<'a>>),
    /// A map, in the order of the wire.
    Map(Vec<(Value<'a>, Value<'a>)>),
    /// An extension type: in NEO an enumeration.
    Extension {
        /// The number of the type.
        kind: i8,
        /// The msgpack of the enumeration's number.
        payload: &'a [u8],
    },
}

impl<'a> Value<'a> {
    /// The bytes of a value that is bytes.
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The value of a bool.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number of an integer.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The items of an array.
    pub fn as_array(&self) -> Option<&[Value<'a>]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    fn nested(reader: &mut Reader<'a>, depth: usize) -> Result<Value<'a>, Mismatch> {
        if depth > VALUE_NESTING_MAX {
            let expected = format!("at most {VALUE_NESTING_MAX} nested values");
            return Err(reader.mismatch(expected, "one more".into()));
        }
        Ok(match reader.peek() {
            Some(Marker::Null) => {
                reader.take_nil();
                Value::Nil
            }
            Some(Marker::False | Marker::True) => Value::Bool(reader.bool()?),
            Some(Marker::F64) => Value::Float(reader.float()?),
            Some(Marker::Bin8 | Marker::Bin16 | Marker::Bin32) => {
                Value::Bytes(reader.bytes("bytes")?)
            }
            Some(Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32) => {
                Value::Text(reader.msgpack_text()?)
            }
            Some(Marker::FixArray(_) | Marker::Array16 | Marker::Array32) => {
                let length = reader.array_length()?;
                let mut items = Vec::with_capacity(length);
                for _ in 0..length {
                    items.push(Value::nested(reader, depth + 1)?);
                }
                Value::Array(items)
            }
            Some(Marker::FixMap(_) | Marker::Map16 | Marker::Map32) => {
                let length = reader.map_length()?;
                let mut entries = Vec::with_capacity(length);
                for _ in 0..length {
                    let key = Value::nested(reader, depth + 1)?;
                    entries.push((key, Value::nested(reader, depth + 1)?));
                }
                Value::Map(entries)
            }
            Some(
                Marker::FixExt1
                | Marker::FixExt2
                | Marker::FixExt4
                | Marker::FixExt8
                | Marker::FixExt16
                | Marker::Ext8
                | Marker::Ext16
                | Marker::Ext32,
            ) => {
                let extension = reader.extension("an extension type")?;
                Value::Extension { kind: extension.kind, payload: extension.payload }
            }
            _ => Value::Int(reader.int("a value")?),
        })
    }
}

impl Encode for Value<'_> {
    fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Value::Nil => out.nil(),
            Value::Bool(value) => out.bool(*value),
            Value::Int(number) => out.int(*number),
            Value::Float(number) => out.float(*number),
            Value::Bytes(bytes) => out.bytes(bytes),
            Value::Text(text) => out.msgpack_text(text),
            Value::Array(items) => items.encode(out),
            Value::Map(entries) => {
                out.map(entries.len());
                for (key, value) in entries {
                    key.encode(out);
                    value.encode(out);
                }
            }
            Value::Extension { kind, payload } => out.extension(*kind, payload),
        }
    }
}

impl<'a> Decode<'a> for Value<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Value<'a>, Mismatch> {
        Value::nested(reader, 0)
    }

    fn decode_optional(reader: &mut Reader<'a>) -> Result<Option<Value<'a>>, Mismatch> {
        if reader.take_nil() { Ok(None) } else { Value::decode(reader).map(Some) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_nest_up_to_a_limit() {
        let nested = |depth| [&b"\x91".repeat(depth)[..], b"\xc0"].concat();
        let decode = |bytes: &[u8]| Value::decode(&mut Reader::new(bytes)).map(drop);
        assert_eq!(decode(&nested(VALUE_NESTING_MAX)), Ok(()));
        let error = decode(&nested(VALUE_NESTING_MAX + 1)).unwrap_err();
        assert_eq!((&*error.expected, error.offset), ("at most 16 nested values", 17));
        assert!(decode(&[&b"\x81\x01".repeat(100_000)[..], b"\xc0"].concat()).is_err());
    }
}
