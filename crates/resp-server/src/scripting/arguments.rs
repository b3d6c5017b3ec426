//! The arguments of a command that a script calls.

use mlua::{MultiValue, Value};
use zodium_resp::{OwnedRequest, format_double};

/// Reads a script's arguments as a request, which is empty before; or why that is none.
pub(super) fn read(arguments: &MultiValue, request: &mut OwnedRequest) -> Result<(), &'static str> {
    if arguments.is_empty() {
        return Err("ERR Please specify at least one argument for this call");
    }
    for argument in arguments {
        match argument {
            Value::String(text) => request.push(&text.as_bytes()),
            Value::Integer(number) => request.push(number.to_string().as_bytes()),
            Value::Number(number) => request.push(format_double(*number).as_bytes()),
            _ => return Err("ERR Command arguments must be strings or integers"),
        }
    }
    Ok(())
}

/// A number of Lua, whole or not.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}
