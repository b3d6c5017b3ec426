//! The library `cjson` of scripts: `encode`, `decode` and `null`.

use mlua::{Error, Lua, LuaString, Result, Table, Value};
use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::errors::text_of;
use super::packed::Packed;
use super::room::with_room;

/// Tables within tables. 500 overflow the stack of a worker, and 128 are decoded.
const DEPTH_MAX: usize = 200;
/// A table with more gaps than that for each element is no array: `{[1] = 1, [1000000] = 2}`.
const SPARSE_MAX: usize = 2;
/// Arrays up to this length may be sparse.
const SPARSE_LENGTH_MIN: usize = 10;

/// The library.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set(
        "encode",
        lua.create_function(|lua, value: Value| {
            let mut out = Packed::new(lua);
            encode(&mut out, &value, 0)?;
            lua.create_string(out.bytes)
        })?,
    )?;
    table.raw_set(
        "decode",
        lua.create_function(|lua, text: LuaString| {
            let text = text.as_bytes();
            let failed = |error| Error::runtime(format!("the JSON cannot be decoded: {error}"));
            with_room(lua, text.len(), || decode(lua, &text).map_err(failed))
        })?,
    )?;
    Ok(table)
}

fn encode(packed: &mut Packed, value: &Value, depth: usize) -> Result<()> {
    packed.check()?;
    let out = &mut packed.bytes;
    if depth > DEPTH_MAX {
        return Err(Error::runtime("Cannot serialise, excessive depth"));
    }
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        value if *value == Value::NULL => out.extend_from_slice(b"null"),
        Value::Boolean(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Value::Integer(number) => encode_number(out, *number as f64)?,
        Value::Number(number) => encode_number(out, *number)?,
        Value::String(text) => encode_text(out, &text.as_bytes()),
        Value::Table(table) => encode_table(packed, table, depth + 1)?,
        other => {
            let kind = other.type_name();
            return Err(Error::runtime(format!("Cannot serialise {kind}: type not supported")));
        }
    }
    Ok(())
}

/// A number with up to 14 digits, as `%.14g` writes it.
fn encode_number(out: &mut Vec<u8>, number: f64) -> Result<()> {
    if !number.is_finite() {
        return Err(Error::runtime("Cannot serialise number: must not be NaN or Inf"));
    }
    // Rounded to 14 digits, then as short as that allows.
    let rounded: f64 = format!("{number:.13e}").parse().unwrap_or(number);
    let is_plain = rounded == 0.0 || (1e-4..1e14).contains(&rounded.abs());
    let text = match is_plain {
        true => format!("{rounded}"),
        false => exponential(rounded),
    };
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// With a sign and two digits at least in the exponent.
fn exponential(number: f64) -> String {
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// Bytes that are not UTF-8 are copied as they are.
fn encode_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..32 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

/// The length of the array that a table is; `None` if it has other keys, or none.
fn array_length(packed: &mut Packed, table: &Table) -> Result<Option<usize>> {
    let (mut count, mut last) = (0, 0_usize);
    for pair in table.pairs::<Value, Value>() {
        let place = match pair?.0 {
            Value::Integer(number) if number > 0 => usize::try_from(number).ok(),
            _ => None,
        };
        let Some(place) = place else { return Ok(None) };
        (count, last) = (count + 1, last.max(place));
    }
    packed.note(count)?;
    if last > SPARSE_LENGTH_MIN && last > count * SPARSE_MAX {
        return Err(Error::runtime("Cannot serialise table: excessively sparse array"));
    }
    Ok((last > 0).then_some(last))
}

fn encode_table(packed: &mut Packed, table: &Table, depth: usize) -> Result<()> {
    if let Some(length) = array_length(packed, table)? {
        for place in 1..=length {
            packed.bytes.push(if place == 1 { b'[' } else { b',' });
            encode(packed, &table.raw_get(place)?, depth)?;
        }
        packed.bytes.push(b']');
        return Ok(());
    }
    packed.bytes.push(b'{');
    let mut is_first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let out = &mut packed.bytes;
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        match &key {
            Value::String(text) => encode_text(out, &text.as_bytes()),
            Value::Integer(number) => encode_text(out, number.to_string().as_bytes()),
            Value::Number(number) => {
                out.push(b'"');
                encode_number(out, *number)?;
                out.push(b'"');
            }
            _ => {
                let text = "Cannot serialise table: table key must be a number or string";
                return Err(Error::runtime(text));
            }
        }
        out.push(b':');
        encode(packed, &value, depth)?;
    }
    packed.bytes.push(b'}');
    Ok(())
}

/// Decodes a text into tables, with nothing in between: the limit of Lua's memory holds for it.
pub(super) fn decode(lua: &Lua, text: &[u8]) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Decoder(lua).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Makes values of Lua from JSON.
#[derive(Clone, Copy)]
struct Decoder<'lua>(&'lua Lua);

impl<'de> DeserializeSeed<'de> for Decoder<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Decoder<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        out.write_str("any value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::NULL)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(Value::Boolean(value))
    }

    fn visit_i64<E>(self, number: i64) -> std::result::Result<Value, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> std::result::Result<Value, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> std::result::Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Value, E> {
        self.0.create_string(text).map(Value::String).map_err(refused)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> std::result::Result<Value, A::Error> {
        let table = self.0.create_table().map_err(refused)?;
        let mut place = 1;
        while let Some(element) = all.next_element_seed(self)? {
            table.raw_set(place, element).map_err(refused)?;
            place += 1;
        }
        Ok(Value::Table(table))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> std::result::Result<Value, A::Error> {
        let table = self.0.create_table().map_err(refused)?;
        while let Some((key, member)) = all.next_entry_seed(self, self)? {
            table.raw_set(key, member).map_err(refused)?;
        }
        Ok(Value::Table(table))
    }
}

/// An error of Lua, for the decoder of JSON.
fn refused<E: serde::de::Error>(error: Error) -> E {
    E::custom(text_of(&error))
}
