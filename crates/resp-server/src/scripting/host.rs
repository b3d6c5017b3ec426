//! The functions that the prelude of a worker's Lua state gets from the server.

use std::time::Instant;

use mlua::chunk::ChunkMode;
use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

use super::arguments::number;
use super::errors::text_of;
use super::sources::Digest;
use super::{bits, json, messagepack};
use crate::commands;

/// What scripts are called in errors.
pub(super) const CHUNK: &str = "@user_script";
/// Callers that are looked at for the place of an error.
const LEVELS_MAX: usize = 20;
/// Longest message of a script in the log.
const LOGGED_BYTES_MAX: usize = 1 << 10;
/// The version of Redis that scripts compare, as a number.
const REDIS_VERSION_NUMBER: u32 = 0x0007_0204;
/// The same of Valkey.
const VERSION_NUMBER: u32 = 0x0008_0001;

/// The functions, without those that belong to one run of a script.
pub(super) fn functions(lua: &Lua) -> Result<Table> {
    let host = lua.create_table()?;
    host.raw_set("redis_version", commands::REDIS_VERSION)?;
    host.raw_set("redis_version_number", REDIS_VERSION_NUMBER)?;
    host.raw_set("version", commands::VERSION)?;
    host.raw_set("version_number", VERSION_NUMBER)?;
    host.raw_set("cjson", json::library(lua)?)?;
    host.raw_set("cmsgpack", messagepack::library(lua)?)?;
    host.raw_set("bit", bits::library(lua)?)?;
    host.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    host.raw_set("log", lua.create_function(log)?)?;
    host.raw_set("set_repl", lua.create_function(set_repl)?)?;
    let is_command = |_: &Lua, name: LuaString| Ok(commands::named(&name.as_bytes()).is_some());
    host.raw_set("is_command", lua.create_function(is_command)?)?;
    let began = Instant::now();
    host.raw_set("clock", lua.create_function(move |_, ()| Ok(began.elapsed().as_secs_f64()))?)?;
    let kilobytes = |lua: &Lua, ()| Ok(lua.used_memory() as f64 / 1024.0);
    host.raw_set("kilobytes", lua.create_function(kilobytes)?)?;
    host.raw_set("text", lua.create_function(|_, reason: Value| Ok(coded(&reason)))?)?;
    host.raw_set("place", lua.create_function(|lua, ()| Ok(place(lua)))?)?;
    Ok(host)
}

/// A function that compiles a text, for scripts whose environment this is. Lua's own would take
/// compiled code too, which could do anything.
pub(super) fn loader(lua: &Lua, environment: &Table) -> Result<mlua::Function> {
    let environment = environment.clone();
    lua.create_function(move |lua, (text, name): (Value, Option<String>)| {
        let Value::String(text) = text else {
            return Ok((Value::Nil, Value::String(lua.create_string("the source is no string")?)));
        };
        let bytes = text.as_bytes().to_vec();
        let name = name.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned());
        match compiled(lua, &bytes, &name, &environment) {
            Ok(function) => Ok((Value::Function(function), Value::Nil)),
            Err(error) => Ok((Value::Nil, Value::String(lua.create_string(text_of(&error))?))),
        }
    })
}

/// Compiles a text as a function.
///
/// Lua's parser does not protect the name of a text from the garbage collector (CVE-2025-49844).
/// Equal strings are one object in Lua, so the string that is held here keeps the parser's alive.
pub(super) fn compiled(
    lua: &Lua,
    text: &[u8],
    name: &str,
    environment: &Table,
) -> Result<mlua::Function> {
    let held = lua.create_string(name)?;
    let chunk = lua.load(text).set_name(name).set_mode(ChunkMode::Text);
    let function = chunk.set_environment(environment.clone()).into_function();
    drop(held);
    function
}

fn sha1hex(lua: &Lua, arguments: MultiValue) -> Result<String> {
    if arguments.len() != 1 {
        return Err(refusal("ERR wrong number of arguments"));
    }
    let text = arguments.front().and_then(|value| lua.coerce_string(value.clone()).ok()?);
    let text = text.map(|text| text.as_bytes().to_vec()).unwrap_or_default();
    Ok(Digest::of(&text).as_str().to_owned())
}

fn log(lua: &Lua, mut arguments: MultiValue) -> Result<()> {
    if arguments.len() < 2 {
        return Err(refusal("ERR server.log() requires two arguments or more."));
    }
    let level = arguments.pop_front().and_then(|level| number(&level));
    let level = level.ok_or_else(|| refusal("ERR First argument must be a number (log level)."))?;
    if !(0.0..=3.0).contains(&level) {
        return Err(refusal("ERR Invalid log level."));
    }
    let words = arguments.iter().filter_map(|word| lua.coerce_string(word.clone()).ok()?);
    let words: Vec<String> = words.map(|word| word.to_string_lossy()).collect();
    let text = shown(&words.join(" "));
    match level as u8 {
        0 => tracing::debug!("a script says: {text}"),
        1 | 2 => tracing::info!("a script says: {text}"),
        _ => tracing::warn!("a script says: {text}"),
    }
    Ok(())
}

/// A message of a script as a part of a line of the log: what could end the line or begin another
/// one is escaped, and a long message is cut.
fn shown(message: &str) -> String {
    let cut = message.floor_char_boundary(LOGGED_BYTES_MAX);
    let escaped = message[..cut].chars().map(|letter| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    });
    let rest = if cut < message.len() { "..." } else { "" };
    escaped.chain([rest.to_owned()]).collect()
}

/// There are no replicas, so that there is nothing to set.
fn set_repl(_: &Lua, arguments: MultiValue) -> Result<()> {
    let [flags] = arguments.as_slices().0 else {
        return Err(refusal("ERR server.set_repl() requires one argument."));
    };
    match number(flags) {
        Some(flags) if (0.0..=3.0).contains(&flags) => Ok(()),
        _ => Err(refusal(
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        )),
    }
}

/// An error with a code in front, which scripts see as a table.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

/// An error of a command or of a function of ours. Its text begins with a code.
pub(super) fn refusal(text: impl Into<String>) -> Error {
    Error::external(Refusal(text.into()))
}

/// An error as the table that `redis.pcall` returns.
pub(super) fn failure(lua: &Lua, error: &Error) -> Result<Value> {
    let table = lua.create_table()?;
    table.raw_set("err", coded(&Value::Error(Box::new(error.clone()))))?;
    Ok(Value::Table(table))
}

/// The text of an error, with a code in front.
fn coded(reason: &Value) -> String {
    match reason {
        Value::Error(error) => match error.downcast_ref::<Refusal>() {
            Some(Refusal(text)) => text.clone(),
            None => format!("ERR {}", text_of(error)),
        },
        other => format!("ERR {}", plain(other)),
    }
}

/// An error that is no table, as a text.
pub(super) fn plain(reason: &Value) -> String {
    match reason {
        Value::Error(error) => text_of(error),
        Value::String(text) => text.to_string_lossy(),
        other => other.to_string().unwrap_or_else(|_| other.type_name().to_owned()),
    }
}

/// The script's line that is being executed.
fn place(lua: &Lua) -> (Option<&'static str>, Option<usize>) {
    for level in 0..LEVELS_MAX {
        let found = lua.inspect_stack(level, |debug| {
            let is_script = debug.source().source.as_deref() == Some(CHUNK);
            debug.current_line().filter(|_| is_script)
        });
        match found {
            None => break,
            Some(None) => {}
            Some(line) => return (Some(CHUNK), line),
        }
    }
    (None, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_script_is_a_part_of_one_line_of_the_log() {
        assert_eq!(shown("a\nb\r\u{1b}[2J\u{85}ä"), "a\\nb\\r\\u{1b}[2J\\u{85}ä");
        let long = "ä".repeat(LOGGED_BYTES_MAX);
        assert_eq!(shown(&long), format!("{}...", &long[..LOGGED_BYTES_MAX]));
    }
}
