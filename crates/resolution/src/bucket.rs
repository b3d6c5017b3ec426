//! Decodes, merges and encodes the states of buckets and sets.

use zodium_pickle::Value;

use crate::Reason;
use crate::column::Column;
use crate::entry::Entry;
use crate::merge::merge;

/// The types in a bucket (with values) or a set (without).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) keys: Column,
    pub(crate) values: Option<Column>,
}

/// The state of a bucket.
struct Bucket<'a> {
    entries: Vec<Entry<'a>>,
    next: Option<Value<'a>>,
}

/// Merges three states of a bucket.
pub(crate) fn resolve<'a>(
    leaf: Leaf,
    old: Value<'a>,
    committed: Value<'a>,
    new: Value<'a>,
) -> Result<Value<'a>, Reason> {
    let old = read(leaf, old)?;
    let committed = read(leaf, committed)?;
    let new = read(leaf, new)?;
    // C compares references by identity; here the references as pickled are compared.
    if old.next != committed.next || old.next != new.next {
        return Err(Reason::Contradiction("the next bucket is another"));
    }
    if committed.entries.is_empty() || new.entries.is_empty() {
        return Err(Reason::Contradiction("a bucket was emptied, which takes it from its tree"));
    }
    let merged = merge(old.entries, committed.entries, new.entries)?;
    if merged.is_empty() {
        return Err(Reason::Contradiction("nothing is left, which takes the bucket from its tree"));
    }
    Ok(write(leaf, merged, old.next))
}

fn read(leaf: Leaf, state: Value<'_>) -> Result<Bucket<'_>, Reason> {
    let parts = match state {
        Value::None => return Ok(Bucket { entries: Vec::new(), next: None }),
        Value::Tuple(parts) => parts,
        _ => return Err(Reason::Malformed("a bucket's state is a tuple")),
    };
    if parts.len() > 2 {
        return Err(Reason::Malformed("a bucket's state has two parts"));
    }
    let mut parts = parts.into_iter();
    let Some(Value::Tuple(items)) = parts.next() else {
        return Err(Reason::Malformed("a bucket's items are a tuple"));
    };
    Ok(Bucket { entries: entries(leaf, items)?, next: parts.next() })
}

fn entries(leaf: Leaf, items: Vec<Value<'_>>) -> Result<Vec<Entry<'_>>, Reason> {
    let mut entries = Vec::with_capacity(items.len());
    let mut items = items.into_iter();
    while let Some(key) = items.next() {
        let key = leaf.keys.take(key)?;
        let value = match leaf.values {
            None => Value::None,
            Some(column) => match items.next() {
                Some(value) => column.take(value)?,
                None => return Err(Reason::Malformed("a bucket has a key without a value")),
            },
        };
        entries.push(Entry { key, value });
    }
    Ok(entries)
}

fn write<'a>(leaf: Leaf, entries: Vec<Entry<'a>>, next: Option<Value<'a>>) -> Value<'a> {
    let mut items = Vec::with_capacity(entries.len() * 2);
    for entry in entries {
        items.push(entry.key);
        if leaf.values.is_some() {
            items.push(entry.value);
        }
    }
    let mut state = vec![Value::Tuple(items)];
    state.extend(next);
    Value::Tuple(state)
}
