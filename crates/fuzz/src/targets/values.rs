//! Predicates on trees of values.

use zodium_pickle::Value;

/// The value as both encodings express it: msgpack has no lists beside tuples.
pub(super) fn plain(value: &Value<'_>) -> Value<'static> {
    match value {
        Value::List(items) | Value::Tuple(items) => Value::Tuple(items.iter().map(plain).collect()),
        Value::Dict(entries) => {
            Value::Dict(entries.iter().map(|(key, value)| (plain(key), plain(value))).collect())
        }
        other => other.clone().into_owned(),
    }
}

/// NaN is not equal to itself, so such values cannot be compared.
pub(super) fn has_nan(value: &Value<'_>) -> bool {
    let mut found = false;
    each_value(value, &mut |value| {
        found |= matches!(value, Value::Float(number) if number.is_nan());
    });
    found
}

/// Whether the encoded value may have more nodes, or nest deeper, than a decoder accepts.
pub(super) fn is_beyond_limits(value: &Value<'_>) -> bool {
    let mut count = 0;
    each_value(value, &mut |_| count += 1);
    depth(value) > 90 || count > 100_000
}

fn depth(value: &Value<'_>) -> usize {
    let mut deepest = 0;
    each_part(value, &mut |part| deepest = deepest.max(depth(part)));
    deepest + 1
}

/// Visits the value and everything within it.
pub(super) fn each_value<'v, 'a>(value: &'v Value<'a>, each: &mut dyn FnMut(&'v Value<'a>)) {
    each(value);
    each_part(value, &mut |part| each_value(part, each));
}

fn each_part<'v, 'a>(value: &'v Value<'a>, each: &mut dyn FnMut(&'v Value<'a>)) {
    match value {
        Value::List(items) | Value::Tuple(items) => items.iter().for_each(each),
        Value::Dict(entries) => each_of_entries(entries, each),
        Value::Object(object) => {
            each(&object.callable);
            each(&object.arguments);
            object.items.iter().for_each(&mut *each);
            each_of_entries(&object.entries, each);
            object.state.iter().for_each(each);
        }
        Value::Persistent(id) => each(id),
        _ => {}
    }
}

fn each_of_entries<'v, 'a>(
    entries: &'v [(Value<'a>, Value<'a>)],
    each: &mut dyn FnMut(&'v Value<'a>),
) {
    for (key, value) in entries {
        each(key);
        each(value);
    }
}
