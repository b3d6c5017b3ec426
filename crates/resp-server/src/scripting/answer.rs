//! The answer of a command, for the script that has called it.

use mlua::{Error, IntoLua, Lua, Result, Table, Value};
use zodium_resp::parse_integer;

use super::running::must_end;

/// Values that are made between two looks at whether the script must end.
const VALUES: usize = 64;

/// Reads an answer of ours. What is not whole becomes nil: there is none such.
pub(super) struct Answer<'a> {
    bytes: &'a [u8],
}

impl<'a> Answer<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Answer<'a> {
        Answer { bytes }
    }

    /// The text of an error, if the answer is one.
    pub(super) fn error(&self) -> Option<&'a [u8]> {
        let text = self.bytes.strip_prefix(b"-")?;
        Some(text.strip_suffix(b"\r\n").unwrap_or(text))
    }

    /// Whether the answer is an integer.
    pub(super) fn is_number(&self) -> bool {
        self.bytes.first() == Some(&b':')
    }

    /// The answer as a value of Lua.
    pub(super) fn value(&mut self, lua: &Lua) -> Result<Value> {
        let Some((kind, line)) = self.line() else { return Ok(Value::Nil) };
        let count = parse_integer(line).unwrap_or(0);
        match kind {
            b'+' => field(lua, "ok", lua.create_string(line)?),
            b'-' => field(lua, "err", lua.create_string(line)?),
            // Numbers of Lua are doubles.
            b':' => Ok(Value::Number(count as f64)),
            b'$' | b'*' if count < 0 => Ok(Value::Boolean(false)),
            b'$' => Ok(Value::String(lua.create_string(self.bulk(count))?)),
            b'=' => self.verbatim(lua, count),
            b'*' | b'>' => self.array(lua, count),
            b'%' => self.map(lua, count),
            b'~' => self.set(lua, count),
            b'#' => Ok(Value::Boolean(line == b"t")),
            b',' => field(lua, "double", Value::Number(double(line))),
            b'(' => field(lua, "big_number", lua.create_string(line)?),
            _ => Ok(Value::Nil),
        }
    }

    fn line(&mut self) -> Option<(u8, &'a [u8])> {
        let end = self.bytes.iter().position(|byte| *byte == b'\r')?;
        let (kind, line) = self.bytes[..end].split_first()?;
        self.bytes = self.bytes.get(end + 2..)?;
        Some((*kind, line))
    }

    fn bulk(&mut self, count: i64) -> &'a [u8] {
        let length = usize::try_from(count).unwrap_or(0).min(self.bytes.len());
        let (bulk, rest) = self.bytes.split_at(length);
        self.bytes = rest.get(2..).unwrap_or_default();
        bulk
    }

    fn array(&mut self, lua: &Lua, count: i64) -> Result<Value> {
        let count = usize::try_from(count).unwrap_or(0);
        Ok(Value::Table(sequence(lua, (0..count).map(|_| self.value(lua)))?))
    }

    fn map(&mut self, lua: &Lua, count: i64) -> Result<Value> {
        let table = lua.create_table()?;
        for number in 0..usize::try_from(count).unwrap_or(0) {
            check(lua, number)?;
            let key = self.value(lua)?;
            table.raw_set(key, self.value(lua)?)?;
        }
        field(lua, "map", Value::Table(table))
    }

    fn set(&mut self, lua: &Lua, count: i64) -> Result<Value> {
        let table = lua.create_table()?;
        for number in 0..usize::try_from(count).unwrap_or(0) {
            check(lua, number)?;
            table.raw_set(self.value(lua)?, true)?;
        }
        field(lua, "set", Value::Table(table))
    }

    fn verbatim(&mut self, lua: &Lua, count: i64) -> Result<Value> {
        let bytes = self.bulk(count);
        let (format, text) = bytes.split_at(bytes.len().min(4));
        let table = lua.create_table()?;
        table.raw_set("format", lua.create_string(&format[..format.len().min(3)])?)?;
        table.raw_set("string", lua.create_string(text)?)?;
        field(lua, "verbatim_string", Value::Table(table))
    }
}

/// A table of values, or the first error.
pub(super) fn sequence<T: IntoLua>(
    lua: &Lua,
    values: impl Iterator<Item = Result<T>>,
) -> Result<Table> {
    let mut failed = None;
    let values = values.enumerate().map(|(number, value)| check(lua, number).and(value));
    let table = lua.create_sequence_from(values.map_while(|value| match value {
        Ok(value) => Some(value),
        Err(error) => {
            failed = Some(error);
            None
        }
    }))?;
    failed.map_or(Ok(table), Err)
}

/// The error of a script that must end, seen now and then. Lua's own hook does not come while
/// values are made, and to make one takes long where others differ from it in few bytes.
fn check(lua: &Lua, number: usize) -> Result<()> {
    let is_due = number % VALUES == VALUES - 1;
    match is_due.then(|| must_end(lua)).flatten() {
        Some(text) => Err(Error::runtime(text)),
        None => Ok(()),
    }
}

fn field(lua: &Lua, name: &str, value: impl IntoLua) -> Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

fn double(text: &[u8]) -> f64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}
