//! The library `cmsgpack` of scripts: `pack` and `unpack`.

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};
use rmp::Marker;
use rmp::{decode as read, encode as write};

use super::packed::Packed;
use super::room::with_room;

/// Tables within tables. Deeper ones are packed as nil.
const DEPTH_MAX: usize = 16;
/// The same of what is unpacked.
const UNPACKED_DEPTH_MAX: usize = 200;
/// Values that a call may return: Lua's limit of its stack for a function in C.
const RESULTS_MAX: usize = 8000;

/// The library.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set(
        "pack",
        lua.create_function(|lua, values: MultiValue| {
            if values.is_empty() {
                return Err(Error::runtime(
                    "bad argument #0 to 'pack' (MessagePack pack needs input.)",
                ));
            }
            let mut out = Packed::new(lua);
            for value in &values {
                pack(&mut out, value, 0)?;
            }
            lua.create_string(out.bytes)
        })?,
    )?;
    table.raw_set(
        "unpack",
        lua.create_function(|lua, text: LuaString| {
            let bytes = text.as_bytes().to_vec();
            let mut rest = &bytes[..];
            let mut values = Vec::new();
            while !rest.is_empty() {
                if values.len() == RESULTS_MAX {
                    return Err(Error::runtime("too many results to unpack"));
                }
                let value = with_room(lua, rest.len(), || unpack(lua, &mut rest, 0))?;
                values.push(value);
            }
            Ok(MultiValue::from_vec(values))
        })?,
    )?;
    Ok(table)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::runtime(format!("cannot pack: {error}"))
}

fn count(length: usize) -> Result<u32> {
    u32::try_from(length).map_err(|_| Error::runtime("cannot pack: more than 2^32 elements"))
}

fn pack(packed: &mut Packed, value: &Value, depth: usize) -> Result<()> {
    packed.check()?;
    let out = &mut packed.bytes;
    match value {
        Value::Boolean(value) => write::write_bool(out, *value).map_err(failed)?,
        Value::Integer(number) => drop(write::write_sint(out, *number).map_err(failed)?),
        // Other doubles keep all their bits.
        Value::Number(number) if f64::from(*number as f32) == *number => {
            write::write_f32(out, *number as f32).map_err(failed)?;
        }
        Value::Number(number) => write::write_f64(out, *number).map_err(failed)?,
        Value::String(text) => {
            let bytes = text.as_bytes();
            write::write_str_len(out, count(bytes.len())?).map_err(failed)?;
            out.extend_from_slice(&bytes);
        }
        Value::Table(table) if depth < DEPTH_MAX => pack_table(packed, table, depth + 1)?,
        _ => write::write_nil(out).map_err(failed)?,
    }
    Ok(())
}

/// A table whose keys are 1 to its length is an array. Its pairs are not collected: Lua has room
/// for a few thousand references to its values.
fn pack_table(packed: &mut Packed, table: &Table, depth: usize) -> Result<()> {
    let length = table.raw_len();
    let (mut pairs, mut is_array) = (0, true);
    for pair in table.pairs::<Value, Value>() {
        pairs += 1;
        is_array &= match pair?.0 {
            Value::Integer(number) => {
                number > 0 && usize::try_from(number).is_ok_and(|number| number <= length)
            }
            _ => false,
        };
    }
    packed.note(pairs)?;
    if is_array && pairs == length {
        write::write_array_len(&mut packed.bytes, count(length)?).map_err(failed)?;
        return (1..=length).try_for_each(|place| pack(packed, &table.raw_get(place)?, depth));
    }
    write::write_map_len(&mut packed.bytes, count(pairs)?).map_err(failed)?;
    table.pairs::<Value, Value>().try_for_each(|pair| {
        let (key, value) = pair?;
        pack(packed, &key, depth)?;
        pack(packed, &value, depth)
    })
}

fn bad() -> Error {
    Error::runtime("Bad data format in input.")
}

fn taken<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length).ok_or_else(bad)?;
    *rest = after;
    Ok(taken)
}

fn unsigned(rest: &mut &[u8], bytes: usize) -> Result<u64> {
    Ok(taken(rest, bytes)?.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

fn length(rest: &mut &[u8], bytes: usize) -> Result<usize> {
    usize::try_from(unsigned(rest, bytes)?).map_err(|_| bad())
}

pub(super) fn unpack(lua: &Lua, rest: &mut &[u8], depth: usize) -> Result<Value> {
    if depth > UNPACKED_DEPTH_MAX {
        return Err(bad());
    }
    let marker = read::read_marker(rest).map_err(|_| bad())?;
    let text =
        |rest: &mut &[u8], length| Ok(Value::String(lua.create_string(taken(rest, length)?)?));
    match marker {
        Marker::Null => Ok(Value::Nil),
        Marker::True => Ok(Value::Boolean(true)),
        Marker::False => Ok(Value::Boolean(false)),
        Marker::FixPos(number) => Ok(Value::Number(f64::from(number))),
        Marker::FixNeg(number) => Ok(Value::Number(f64::from(number))),
        Marker::U8 => Ok(Value::Number(unsigned(rest, 1)? as f64)),
        Marker::U16 => Ok(Value::Number(unsigned(rest, 2)? as f64)),
        Marker::U32 => Ok(Value::Number(unsigned(rest, 4)? as f64)),
        Marker::U64 => Ok(Value::Number(unsigned(rest, 8)? as f64)),
        Marker::I8 => Ok(Value::Number(f64::from(unsigned(rest, 1)? as i8))),
        Marker::I16 => Ok(Value::Number(f64::from(unsigned(rest, 2)? as i16))),
        Marker::I32 => Ok(Value::Number(f64::from(unsigned(rest, 4)? as i32))),
        Marker::I64 => Ok(Value::Number(unsigned(rest, 8)?.cast_signed() as f64)),
        Marker::F32 => Ok(Value::Number(f64::from(f32::from_bits(unsigned(rest, 4)? as u32)))),
        Marker::F64 => Ok(Value::Number(f64::from_bits(unsigned(rest, 8)?))),
        Marker::FixStr(bytes) => text(rest, usize::from(bytes)),
        Marker::Str8 | Marker::Bin8 => length(rest, 1).and_then(|bytes| text(rest, bytes)),
        Marker::Str16 | Marker::Bin16 => length(rest, 2).and_then(|bytes| text(rest, bytes)),
        Marker::Str32 | Marker::Bin32 => length(rest, 4).and_then(|bytes| text(rest, bytes)),
        Marker::FixArray(count) => array(lua, rest, usize::from(count), depth + 1),
        Marker::Array16 => length(rest, 2).and_then(|count| array(lua, rest, count, depth + 1)),
        Marker::Array32 => length(rest, 4).and_then(|count| array(lua, rest, count, depth + 1)),
        Marker::FixMap(count) => map(lua, rest, usize::from(count), depth + 1),
        Marker::Map16 => length(rest, 2).and_then(|count| map(lua, rest, count, depth + 1)),
        Marker::Map32 => length(rest, 4).and_then(|count| map(lua, rest, count, depth + 1)),
        _ => Err(bad()),
    }
}

fn array(lua: &Lua, rest: &mut &[u8], count: usize, depth: usize) -> Result<Value> {
    let table = lua.create_table()?;
    for place in 1..=count {
        table.raw_set(place, unpack(lua, rest, depth)?)?;
    }
    Ok(Value::Table(table))
}

fn map(lua: &Lua, rest: &mut &[u8], count: usize, depth: usize) -> Result<Value> {
    let table = lua.create_table()?;
    for _ in 0..count {
        let key = unpack(lua, rest, depth)?;
        let value = unpack(lua, rest, depth)?;
        if !key.is_nil() && !matches!(key, Value::Number(number) if number.is_nan()) {
            table.raw_set(key, value)?;
        }
    }
    Ok(Value::Table(table))
}
