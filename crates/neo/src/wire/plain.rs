//! Arguments of plain types: numbers, ids, bytes, text, lists, maps, and values that may be nil.

use zodium_types::{Oid, Tid};

use super::mismatch::Mismatch;
use super::reader::Reader;
use super::writer::Writer;

/// A value that can be written as an argument.
pub(crate) trait Encode {
    /// Appends the value.
    fn encode(&self, out: &mut Writer<'_>);
}

/// A value that can be read from an argument.
pub(crate) trait Decode<'a>: Sized {
    /// Takes the value off the front.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, Mismatch>;

    /// Takes the value or nil off the front.
    fn decode_optional(reader: &mut Reader<'a>) -> Result<Option<Self>, Mismatch> {
        if reader.take_nil() {
            return Ok(None);
        }
        let offset = reader.offset();
        Self::decode(reader).map(Some).map_err(|mismatch| mismatch.or_nil(offset))
    }
}

/// A map, in the order of the wire. NEO/py takes the last one of equal keys; it sends none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map<K, V>(pub Vec<(K, V)>);

impl<K: PartialEq, V> Map<K, V> {
    /// The value of a key; the last one if there are several.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.iter().rev().find(|(other, _)| other == key).map(|(_, value)| value)
    }
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Map<K, V> {
        Map(Vec::new())
    }
}

impl<K, V> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Map<K, V> {
        Map(entries.into_iter().collect())
    }
}

macro_rules! integers {
    ($($integer:ident as $wide:ident with $write:ident: $expected:literal,)*) => {
        $(
            impl Encode for $integer {
                fn encode(&self, out: &mut Writer<'_>) {
                    out.$write($wide::from(*self));
                }
            }

            impl Decode<'_> for $integer {
                fn decode(reader: &mut Reader<'_>) -> Result<$integer, Mismatch> {
                    reader.int($expected)
                }
            }
        )*
    };
}

integers! {
    u8 as u64 with uint: "an integer of 8 bits",
    u16 as u64 with uint: "an integer of 16 bits",
    u32 as u64 with uint: "an integer of 32 bits",
    u64 as u64 with uint: "an integer of 64 bits",
    i64 as i64 with int: "a signed integer of 64 bits",
}

impl Encode for bool {
    fn encode(&self, out: &mut Writer<'_>) {
        out.bool(*self);
    }
}

impl Decode<'_> for bool {
    fn decode(reader: &mut Reader<'_>) -> Result<bool, Mismatch> {
        reader.bool()
    }
}

impl Encode for f64 {
    fn encode(&self, out: &mut Writer<'_>) {
        out.float(*self);
    }
}

impl Decode<'_> for f64 {
    fn decode(reader: &mut Reader<'_>) -> Result<f64, Mismatch> {
        reader.float()
    }
}

impl Encode for &[u8] {
    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(self);
    }
}

impl<'a> Decode<'a> for &'a [u8] {
    fn decode(reader: &mut Reader<'a>) -> Result<&'a [u8], Mismatch> {
        reader.bytes("bytes")
    }
}

impl Encode for &str {
    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(self.as_bytes());
    }
}

impl<'a> Decode<'a> for &'a str {
    fn decode(reader: &mut Reader<'a>) -> Result<&'a str, Mismatch> {
        reader.text()
    }
}

impl Encode for Oid {
    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(&self.to_bytes());
    }
}

impl Decode<'_> for Oid {
    fn decode(reader: &mut Reader<'_>) -> Result<Oid, Mismatch> {
        reader.array("an oid of 8 bytes").map(|bytes| Oid(u64::from_be_bytes(bytes)))
    }
}

impl Encode for Tid {
    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(&self.to_bytes());
    }
}

impl Decode<'_> for Tid {
    fn decode(reader: &mut Reader<'_>) -> Result<Tid, Mismatch> {
        reader.array("a tid of 8 bytes").map(|bytes| Tid(u64::from_be_bytes(bytes)))
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Some(value) => value.encode(out),
            None => out.nil(),
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Option<T>, Mismatch> {
        T::decode_optional(reader)
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, out: &mut Writer<'_>) {
        out.array(self.len());
        self.iter().for_each(|item| item.encode(out));
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Vec<T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Vec<T>, Mismatch> {
        // The scanner has bounded the number of values of the whole message.
        let length = reader.array_length()?;
        let mut items = Vec::with_capacity(length);
        for index in 0..length {
            items.push(T::decode(reader).map_err(|mismatch| mismatch.in_item(index))?);
        }
        Ok(items)
    }
}

impl<K: Encode, V: Encode> Encode for Map<K, V> {
    fn encode(&self, out: &mut Writer<'_>) {
        out.map(self.0.len());
        for (key, value) in &self.0 {
            key.encode(out);
            value.encode(out);
        }
    }
}

impl<'a, K: Decode<'a>, V: Decode<'a>> Decode<'a> for Map<K, V> {
    fn decode(reader: &mut Reader<'a>) -> Result<Map<K, V>, Mismatch> {
        let length = reader.map_length()?;
        let mut entries = Vec::with_capacity(length);
        for index in 0..length {
            let key = K::decode(reader).map_err(|mismatch| mismatch.in_item(index))?;
            let value = V::decode(reader).map_err(|mismatch| mismatch.in_item(index))?;
            entries.push((key, value));
        }
        Ok(Map(entries))
    }
}

impl Encode for String {
    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(self.as_bytes());
    }
}

impl Decode<'_> for String {
    fn decode(reader: &mut Reader<'_>) -> Result<String, Mismatch> {
        reader.text().map(str::to_owned)
    }
}
