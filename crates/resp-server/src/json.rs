//! Pickled values as JSON. Classes are names, and are never imported.
//!
//! What JSON has no form for is an object with a name that begins with `$`: `$bytes`, `$ref`,
//! `$class`, `$object`, `$int`, `$float`, `$dict`.

use serde_json::{Map, Value as Json, json};
use zodium_pickle::{Global, Object, Value};
use zodium_types::Oid;

/// A value as JSON.
pub(crate) fn of(value: &Value) -> Json {
    match value {
        Value::None => Json::Null,
        Value::Bool(truth) => Json::from(*truth),
        Value::Int(number) => match (i64::try_from(*number), u64::try_from(*number)) {
            (Ok(number), _) => Json::from(number),
            (_, Ok(number)) => Json::from(number),
            _ => json!({ "$int": number.to_string() }),
        },
        Value::BigInt(bytes) => json!({ "$int": { "little-endian": hexadecimal(bytes) } }),
        Value::Float(number) if number.is_finite() => Json::from(*number),
        Value::Float(number) => json!({ "$float": number.to_string() }),
        Value::Bytes(bytes) => json!({ "$bytes": hexadecimal(bytes) }),
        Value::Str(text) => Json::from(&**text),
        Value::List(items) | Value::Tuple(items) => all(items),
        Value::Dict(entries) => of_dict(entries),
        Value::Global(class) => json!({ "$class": class.to_string() }),
        Value::Object(object) => of_object(object),
        Value::Persistent(reference) => of_reference(reference),
    }
}

fn all(items: &[Value]) -> Json {
    items.iter().map(of).collect()
}

fn of_dict(entries: &[(Value, Value)]) -> Json {
    let pair = |(key, value): &(Value, Value)| {
        let key = key.as_str().filter(|key| !key.starts_with('$'))?;
        Some((key.to_owned(), of(value)))
    };
    let pairs: Option<Map<String, Json>> = entries.iter().map(pair).collect();
    pairs.map_or_else(|| json!({ "$dict": of_pairs(entries) }), Json::Object)
}

fn of_pairs(entries: &[(Value, Value)]) -> Json {
    entries.iter().map(|(key, value)| Json::from(vec![of(key), of(value)])).collect()
}

fn of_object(object: &Object) -> Json {
    let mut map = Map::new();
    map.insert("$object".to_owned(), of(&object.callable));
    if !matches!(&object.arguments, Value::Tuple(arguments) if arguments.is_empty()) {
        map.insert("arguments".to_owned(), of(&object.arguments));
    }
    if !object.items.is_empty() {
        map.insert("items".to_owned(), all(&object.items));
    }
    if !object.entries.is_empty() {
        map.insert("entries".to_owned(), of_pairs(&object.entries));
    }
    if let Some(state) = &object.state {
        map.insert("state".to_owned(), of(state));
    }
    Json::Object(map)
}

/// A reference to another object: an oid, with the class if the reference has it. Others, such as
/// weak references and those to other databases, are given as they are pickled.
fn of_reference(reference: &Value) -> Json {
    let (oid, class) = match reference {
        Value::Tuple(parts) if parts.len() == 2 => (parts[0].as_oid(), parts[1].as_global()),
        other => (other.as_oid(), None),
    };
    match (oid, class.map(Global::to_string)) {
        (Some(Oid(oid)), None) => json!({ "$ref": format!("{oid:016x}") }),
        (Some(Oid(oid)), Some(class)) => json!({ "$ref": format!("{oid:016x}"), "class": class }),
        (None, _) => json!({ "$ref": of(reference) }),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_has_no_form_for_is_named() {
        let class = Value::Global(Global::new("module", "Name").unwrap());
        let oid = Value::Bytes(7_u64.to_be_bytes().to_vec().into());
        let reference = Value::Persistent(Box::new(Value::tuple([oid.clone(), class.clone()])));
        for (value, expected) in [
            (Value::Int(i128::from(u64::MAX)), json!(u64::MAX)),
            (Value::Int(i128::MIN), json!({ "$int": i128::MIN.to_string() })),
            (Value::Float(f64::NAN), json!({ "$float": "NaN" })),
            (Value::Bytes(b"\0\xff"[..].into()), json!({ "$bytes": "00ff" })),
            (Value::dict([("a", Value::tuple([1.into(), "x".into()]))]), json!({ "a": [1, "x"] })),
            (Value::dict([("$a", Value::None)]), json!({ "$dict": [["$a", null]] })),
            (Value::Dict(vec![(1.into(), true.into())]), json!({ "$dict": [[1, true]] })),
            (class, json!({ "$class": "module.Name" })),
            (reference, json!({ "$ref": "0000000000000007", "class": "module.Name" })),
            (Value::Persistent(Box::new(oid)), json!({ "$ref": "0000000000000007" })),
            (Value::Persistent(Box::new("x".into())), json!({ "$ref": "x" })),
        ] {
            assert_eq!(of(&value), expected);
        }
    }
}
