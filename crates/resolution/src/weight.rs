//! Measures how much text there is to compare and to write.

use zodium_pickle::Value;

/// Bytes of text in a value, counting each mention.
pub(crate) fn weight(value: &Value<'_>) -> usize {
    match value {
        Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => 0,
        Value::BigInt(bytes) | Value::Bytes(bytes) => bytes.len(),
        Value::Str(text) => text.len(),
        Value::Global(global) => global.module().len() + global.name().len(),
        Value::List(items) | Value::Tuple(items) => items.iter().map(weight).sum(),
        Value::Dict(entries) => weight_of_entries(entries),
        Value::Persistent(id) => weight(id),
        Value::Object(object) => {
            let items: usize = object.items.iter().map(weight).sum();
            let state = object.state.as_ref().map_or(0, weight);
            let made = weight(&object.callable) + weight(&object.arguments);
            made + items + state + weight_of_entries(&object.entries)
        }
    }
}

fn weight_of_entries(entries: &[(Value<'_>, Value<'_>)]) -> usize {
    entries.iter().map(|(key, value)| weight(key) + weight(value)).sum()
}
