//! What a script returns, as an answer to the client.

use mlua::{LuaString, Table, Value};
use zodium_resp::Version;

use crate::reply::Reply;

/// Tables within tables. A table may contain itself.
const DEPTH_MAX: usize = 200;

/// Writes a value. `version` is the one that the script has chosen: with RESP2, `false` is a null,
/// and `true` a 1.
pub(super) fn write(reply: &mut Reply, value: &Value, version: Version) {
    write_at(reply, value, version, 0);
}

fn write_at(reply: &mut Reply, value: &Value, version: Version, depth: usize) {
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Integer(number) => reply.integer(*number),
        // As a cast of C does; out of range it is the nearest.
        Value::Number(number) => reply.integer(*number as i64),
        Value::Boolean(is_true) => match (version, is_true) {
            (Version::Two, true) => reply.integer(1),
            (Version::Two, false) => reply.null(),
            (Version::Three, is_true) => reply.boolean(*is_true),
        },
        Value::Table(table) if depth < DEPTH_MAX => write_table(reply, table, version, depth + 1),
        Value::Table(_) => reply.error("ERR reached lua stack limit"),
        _ => reply.null(),
    }
}

fn text_field(table: &Table, name: &str) -> Option<LuaString> {
    match table.raw_get(name) {
        Ok(Value::String(text)) => Some(text),
        Ok(Value::Integer(_) | Value::Number(_)) => None,
        _ => None,
    }
}

fn table_field(table: &Table, name: &str) -> Option<Table> {
    table.raw_get::<Option<Table>>(name).ok().flatten()
}

fn lossy(text: &LuaString) -> String {
    text.to_string_lossy().replace(['\r', '\n'], " ")
}

fn write_table(reply: &mut Reply, table: &Table, version: Version, depth: usize) {
    if let Some(text) = text_field(table, "err") {
        return reply.error(&text.to_string_lossy());
    }
    if let Some(text) = text_field(table, "ok") {
        return reply.simple(&lossy(&text));
    }
    match table.raw_get("double") {
        Ok(Value::Number(number)) => return reply.double(number),
        Ok(Value::Integer(number)) => return reply.double(number as f64),
        _ => {}
    }
    if let Some(text) = text_field(table, "big_number") {
        return reply.big_number(&lossy(&text));
    }
    if let Some(parts) = table_field(table, "verbatim_string")
        && let (Some(format), Some(text)) =
            (text_field(&parts, "format"), text_field(&parts, "string"))
    {
        return reply.verbatim_as(&format.as_bytes(), &text.as_bytes());
    }
    if let Some(map) = table_field(table, "map") {
        let pairs: Vec<(Value, Value)> = map.pairs().flatten().collect();
        reply.map(pairs.len());
        for (key, value) in &pairs {
            write_at(reply, key, version, depth);
            write_at(reply, value, version, depth);
        }
        return;
    }
    if let Some(set) = table_field(table, "set") {
        let members: Vec<(Value, Value)> = set.pairs().flatten().collect();
        reply.set(members.len());
        members.iter().for_each(|(member, _)| write_at(reply, member, version, depth));
        return;
    }
    // An array ends at its first nil.
    let at = |place: usize| table.raw_get::<Value>(place).unwrap_or_default();
    let elements: Vec<Value> = (1..).map(at).take_while(|value| !value.is_nil()).collect();
    reply.array(elements.len());
    elements.iter().for_each(|element| write_at(reply, element, version, depth));
}
