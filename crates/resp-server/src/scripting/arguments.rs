//! The arguments of a command that a script calls.

use mlua::{MultiValue, Value};
use zodium_resp::{OwnedRequest, format_double};

/// The request of a script's arguments, or why there is none.
pub(super) fn request(arguments: &MultiValue) -> Result<OwnedRequest, &'static str> {
    if arguments.is_empty() {
        return Err("ERR Please specify at least one argument for this call");
    }
    let words: Option<Vec<Vec<u8>>> = arguments.iter().map(word).collect();
    let words = words.ok_or("ERR Command arguments must be strings or integers")?;
    Ok(words.iter().map(|word| &word[..]).collect())
}

fn word(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => Some(format_double(*number).into_bytes()),
        _ => None,
    }
}

/// A number of Lua, whole or not.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}
