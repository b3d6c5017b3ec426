//! How Python prints the values of a pickle.

use zodium_pickle::Value;

use super::{float_repr, str_repr};

/// A value as `repr()` prints it; `None` for one that needs a class.
///
/// Strings of Python 2 and bytes look alike in a tree of values, and are printed as strings.
pub fn value_repr(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::None => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => float_repr(*number),
        Value::Str(text) => str_repr(text),
        Value::Bytes(bytes) => str_repr(std::str::from_utf8(bytes).ok()?),
        Value::List(items) => format!("[{}]", joined(items)?),
        Value::Tuple(items) => match items.as_slice() {
            [only] => format!("({},)", value_repr(only)?),
            items => format!("({})", joined(items)?),
        },
        Value::Dict(entries) => {
            let entry = |(key, value): &(Value<'_>, Value<'_>)| {
                Some(format!("{}: {}", value_repr(key)?, value_repr(value)?))
            };
            format!("{{{}}}", entries.iter().map(entry).collect::<Option<Vec<_>>>()?.join(", "))
        }
        Value::BigInt(_) | Value::Global(_) | Value::Object(_) | Value::Persistent(_) => {
            return None;
        }
    })
}

fn joined(items: &[Value<'_>]) -> Option<String> {
    Some(items.iter().map(value_repr).collect::<Option<Vec<_>>>()?.join(", "))
}
