//! What a script returns, as an answer to the client.

use mlua::{Lua, LuaString, Result, Table, Value};
use zodium_resp::Version;

use super::errors::internal;
use super::running::must_end;
use crate::fail::{Fail, Outcome};
use crate::reply::Reply;

/// Tables within tables. A table may contain itself.
const DEPTH_MAX: usize = 200;
/// Most elements of an answer. Tables that contain each other twice would have 2^200 of them.
const ELEMENTS_MAX: usize = 1 << 20;
/// Elements between two looks at whether the script must end.
const ELEMENTS_UNSEEN: usize = 1000;

/// Writes a value, of no more than so many bytes. `version` is the one that the script has chosen:
/// with RESP2, `false` is a null, and `true` a 1.
pub(super) fn write(
    lua: &Lua,
    reply: &mut Reply,
    value: &Value,
    (version, bytes_max): (Version, usize),
) -> Outcome {
    let start = reply.written();
    let end = start.saturating_add(bytes_max);
    let mut writer = Writer { lua, reply, version, end, elements: 0, seen: 0 };
    let outcome = writer.value(value, 0);
    if outcome.is_err() {
        reply.cut(start);
    }
    outcome
}

/// An answer that is being written.
struct Writer<'w, 'r> {
    lua: &'w Lua,
    reply: &'w mut Reply<'r>,
    version: Version,
    /// Where the answer must end.
    end: usize,
    /// Elements of all tables so far.
    elements: usize,
    /// Values written until the last look at whether the script must end.
    seen: usize,
}

impl Writer<'_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Outcome {
        self.check()?;
        let reply = &mut *self.reply;
        match value {
            Value::String(text) => reply.bulk(&text.as_bytes()),
            Value::Integer(number) => reply.integer(*number),
            // As a cast of C does; out of range it is the nearest.
            Value::Number(number) => reply.integer(*number as i64),
            Value::Boolean(is_true) => match (self.version, is_true) {
                (Version::Two, true) => reply.integer(1),
                (Version::Two, false) => reply.null(),
                (Version::Three, is_true) => reply.boolean(*is_true),
            },
            Value::Table(table) if depth < DEPTH_MAX => return self.table(table, depth + 1),
            Value::Table(_) => reply.error("ERR reached lua stack limit"),
            _ => reply.null(),
        }
        Ok(())
    }

    /// Refuses an answer that is too long, or of a script that must end.
    fn check(&mut self) -> Outcome {
        if self.elements > ELEMENTS_MAX || self.reply.written() > self.end {
            return Err(Fail::fixed(
                "ERR the result of the script is too large. Return fewer elements or shorter ones",
            ));
        }
        self.seen += 1;
        if self.seen == ELEMENTS_UNSEEN {
            self.seen = 0;
            if let Some(text) = must_end(self.lua) {
                return Err(Fail::text(format!("ERR {text}")));
            }
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Outcome {
        if let Some(text) = text_field(table, "err") {
            self.reply.error(&text.to_string_lossy());
        } else if let Some(text) = text_field(table, "ok") {
            self.reply.simple(&lossy(&text));
        } else if let Some(number) = double_field(table) {
            self.reply.double(number);
        } else if let Some(text) = text_field(table, "big_number") {
            self.reply.big_number(&lossy(&text));
        } else if let Some(parts) = table_field(table, "verbatim_string")
            && let (Some(format), Some(text)) =
                (text_field(&parts, "format"), text_field(&parts, "string"))
        {
            self.reply.verbatim_as(&format.as_bytes(), &text.as_bytes());
        } else if let Some(map) = table_field(table, "map") {
            return self.map(&map, depth);
        } else if let Some(set) = table_field(table, "set") {
            return self.set(&set, depth);
        } else {
            return self.array(table, depth);
        }
        Ok(())
    }

    fn map(&mut self, map: &Table, depth: usize) -> Outcome {
        let count = pairs(map).map_err(internal)?;
        self.elements += count;
        self.reply.map(count);
        for pair in map.pairs::<Value, Value>() {
            let (key, value) = pair.map_err(internal)?;
            self.value(&key, depth)?;
            self.value(&value, depth)?;
        }
        Ok(())
    }

    fn set(&mut self, set: &Table, depth: usize) -> Outcome {
        let count = pairs(set).map_err(internal)?;
        self.elements += count;
        self.reply.set(count);
        for pair in set.pairs::<Value, Value>() {
            self.value(&pair.map_err(internal)?.0, depth)?;
        }
        Ok(())
    }

    /// An array ends at its first nil. Its elements are not collected: Lua has room for a few
    /// thousand references to its values.
    fn array(&mut self, table: &Table, depth: usize) -> Outcome {
        let count = length(table).map_err(internal)?;
        self.elements += count;
        self.reply.array(count);
        for place in 1..=count {
            let element = table.raw_get(place).map_err(internal)?;
            self.value(&element, depth)?;
        }
        Ok(())
    }
}

/// The number of elements before the first nil.
fn length(table: &Table) -> Result<usize> {
    let mut count = 0;
    // As a truth value an element needs no reference.
    while table.raw_get::<Option<bool>>(count + 1)?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn pairs(table: &Table) -> Result<usize> {
    let mut count = 0;
    for pair in table.pairs::<Value, Value>() {
        pair?;
        count += 1;
    }
    Ok(count)
}

fn double_field(table: &Table) -> Option<f64> {
    match table.raw_get("double") {
        Ok(Value::Number(number)) => Some(number),
        Ok(Value::Integer(number)) => Some(number as f64),
        _ => None,
    }
}

fn text_field(table: &Table, name: &str) -> Option<LuaString> {
    match table.raw_get(name) {
        Ok(Value::String(text)) => Some(text),
        _ => None,
    }
}

fn table_field(table: &Table, name: &str) -> Option<Table> {
    table.raw_get::<Option<Table>>(name).ok().flatten()
}

fn lossy(text: &LuaString) -> String {
    text.to_string_lossy().replace(['\r', '\n'], " ")
}
