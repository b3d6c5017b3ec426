//! Exceptions that a server raised.

use thiserror::Error;
use zodium_pickle::{Object, Value};
use zodium_zeo::codec::RemoteError;

/// An exception raised by the server.
#[derive(Debug, Error)]
#[error("{}", exception_text(name, payload))]
pub struct Exception {
    /// The dotted name of its class.
    pub name: String,
    /// Its attributes as a dict, or else its arguments as a sequence.
    pub payload: Value<'static>,
}

impl From<RemoteError<'_>> for Exception {
    fn from(error: RemoteError<'_>) -> Exception {
        Exception { name: error.name.into_owned(), payload: error.payload.into_owned() }
    }
}

/// The text of a server's exception, or else its name and arguments.
fn exception_text(name: &str, payload: &Value<'_>) -> String {
    match first_text(payload) {
        Some(text) => text.to_owned(),
        None => format!("{name}{}", shown(payload)),
    }
}

/// The text of most exceptions: their only argument, or an attribute.
fn first_text<'v>(payload: &'v Value<'_>) -> Option<&'v str> {
    match payload.as_sequence() {
        Some([only]) => only.as_str(),
        Some(_) => None,
        None => payload.entry("message").or_else(|| payload.entry("_reason"))?.as_str(),
    }
}

/// A value as text for an error message.
fn shown(value: &Value<'_>) -> String {
    let all = |items: &[Value<'_>]| items.iter().map(shown).collect::<Vec<_>>().join(", ");
    match value {
        Value::None => "None".to_owned(),
        Value::Bytes(bytes) => format!("b\"{}\"", bytes.escape_ascii()),
        Value::Str(text) => format!("{text:?}"),
        Value::Dict(entries) => {
            let entries =
                entries.iter().map(|(key, value)| format!("{}={}", shown(key), shown(value)));
            format!("({})", entries.collect::<Vec<_>>().join(", "))
        }
        value => match (value.as_int(), value.as_float(), value.as_sequence()) {
            (Some(number), ..) => number.to_string(),
            (_, Some(number), _) => number.to_string(),
            (.., Some(items)) => format!("({})", all(items)),
            _ => value.as_object().and_then(Object::class).map_or_else(
                || format!("<{}>", value.kind()),
                |class| format!("<{}.{}>", class.module(), class.name()),
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &'static str, payload: Value<'static>) -> String {
        Exception { name: name.to_owned(), payload }.to_string()
    }

    #[test]
    fn exceptions_say_what_they_have_to_say() {
        let payload = Value::tuple(["unknown storage: 2".into()]);
        assert_eq!(text("builtins.ValueError", payload), "unknown storage: 2");
        let conflict = Value::dict([("message", "database conflict error".into())]);
        assert_eq!(text("ZODB.POSException.ConflictError", conflict), "database conflict error");
    }

    #[test]
    fn exceptions_without_a_text_are_told_by_name_and_arguments() {
        let oid = Value::tuple([Value::from(b"\0\x01"), 7.into()]);
        assert_eq!(text("m.E", oid), "m.E(b\"\\x00\\x01\", 7)");
        assert_eq!(text("m.ReadOnlyError", Value::tuple([])), "m.ReadOnlyError()");
        let list = Value::list(["a".into(), 2.into()]);
        let others = [1.5.into(), Value::None, list, Value::dict([("key", true.into())])];
        let expected = r#"m.E(1.5, None, ("a", 2), ("key"=1))"#;
        assert_eq!(text("m.E", Value::tuple(others)), expected);
        // More digits than a float has.
        let large = Value::tuple([Value::Int((1 << 60) + 1), Value::None]);
        assert_eq!(text("m.E", large), "m.E(1152921504606846977, None)");
    }
}
