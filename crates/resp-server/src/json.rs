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

/// Whether a value has at most so many bytes as JSON, about. What is pickled once may stand in it
/// again and again.
pub(crate) fn fits<'v>(values: impl IntoIterator<Item = &'v Value<'v>>, bytes_max: usize) -> bool {
    let mut budget = Budget(bytes_max);
    values.into_iter().try_for_each(|value| budget.value(value)).is_some()
}

/// Bytes that are left. No more of a value is looked at than fits.
struct Budget(usize);

impl Budget {
    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.checked_sub(bytes)?;
        Some(())
    }

    fn value(&mut self, value: &Value) -> Option<()> {
        // The least that each takes, with a comma.
        self.spend(2)?;
        match value {
            Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => Some(()),
            Value::BigInt(bytes) | Value::Bytes(bytes) => self.spend(bytes.len().checked_mul(2)?),
            Value::Str(text) => self.text(text),
            Value::List(items) | Value::Tuple(items) => self.values(items),
            Value::Dict(entries) => self.entries(entries),
            Value::Global(class) => self.spend(class.module().len() + class.name().len()),
            Value::Object(object) => {
                self.value(&object.callable)?;
                self.value(&object.arguments)?;
                self.values(&object.items)?;
                self.entries(&object.entries)?;
                object.state.as_ref().map_or(Some(()), |state| self.value(state))
            }
            Value::Persistent(reference) => self.value(reference),
        }
    }

    fn text(&mut self, text: &str) -> Option<()> {
        self.spend(text.len())?;
        // A control character becomes `\\u` and four digits.
        let escaped = text.bytes().filter(|byte| *byte < b' ').count();
        self.spend(escaped.checked_mul(5)?)
    }

    fn values(&mut self, values: &[Value]) -> Option<()> {
        values.iter().try_for_each(|value| self.value(value))
    }

    fn entries(&mut self, entries: &[(Value, Value)]) -> Option<()> {
        entries.iter().try_for_each(|(key, value)| {
            self.value(key)?;
            self.value(value)
        })
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
    fn what_is_repeated_counts_again() {
        let text = || Value::from("0123456789");
        assert!(fits([&text()], 12) && !fits([&text()], 11));
        let entries = Value::dict([("a", Value::List(vec![text(), text()]))]);
        assert!(fits([&entries], 32) && !fits([&entries], 30));
        assert!(!fits([&text(), &text()], 12));
        assert!(!fits([&Value::from("\n\u{1}")], 13));
        assert!(!fits([&Value::Bytes(vec![0; 100].into())], 200));
        let object = Value::Persistent(Box::new(Value::tuple([text(), Value::None])));
        assert!(fits([&object], 18) && !fits([&object], 17));
    }

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
