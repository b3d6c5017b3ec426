//! Writing values, in encodings that every version reads.

use zodium_keyspace::ValueRef;

use crate::output::{length, string};
use crate::{kind, write_stream};

/// Appends a value: the number of its kind, then what it holds.
pub fn write_value(out: &mut Vec<u8>, value: ValueRef<'_>) {
    write_part(out, value, None, usize::MAX);
}

/// Appends a part of a value: its elements from a place on, `None` for its beginning. The part ends
/// with the element that makes it `bytes` long. Returns the place of the next part; `None` at the
/// end. Strings and streams are one part.
///
/// All parts together are what [`write_value`] appends, if the value stays as it is meanwhile.
pub fn write_part(
    out: &mut Vec<u8>,
    value: ValueRef<'_>,
    place: Option<u64>,
    bytes: usize,
) -> Option<u64> {
    let end = out.len().saturating_add(bytes);
    if place.is_none() {
        begin(out, value);
    }
    let from = place.unwrap_or(0);
    let rank = usize::try_from(from).unwrap_or(usize::MAX);
    match value {
        ValueRef::String(text) => {
            string(out, &text);
            None
        }
        ValueRef::Stream(stream) => {
            write_stream::write(out, stream);
            None
        }
        ValueRef::List(list) => {
            let elements = list.range(rank.min(list.len())..list.len());
            sequence(out, (from, end), elements, string)
        }
        ValueRef::SortedSet(set) => {
            sequence(out, (from, end), set.upwards(rank), |out, (member, score)| {
                string(out, member);
                out.extend_from_slice(&score.to_le_bytes());
            })
        }
        ValueRef::Set(set) => scanned(out, (from, end), |out, position| {
            set.scan(position, &mut |member, ()| string(out, member))
        }),
        ValueRef::Hash(hash) => scanned(out, (from, end), |out, position| {
            hash.scan(position, &mut |field, value| {
                string(out, field);
                string(out, value);
            })
        }),
    }
}

/// Appends the number of a value's kind, and of how many elements it is.
fn begin(out: &mut Vec<u8>, value: ValueRef<'_>) {
    let (kind, elements) = match value {
        ValueRef::String(_) => (kind::STRING, None),
        ValueRef::List(list) => (kind::LIST, Some(list.len())),
        ValueRef::Set(set) => (kind::SET, Some(set.len())),
        ValueRef::SortedSet(set) => (kind::SORTED_SET, Some(set.len())),
        ValueRef::Hash(hash) => (kind::HASH, Some(hash.len())),
        ValueRef::Stream(_) => (kind::STREAM_3, None),
    };
    out.push(kind);
    if let Some(elements) = elements {
        length(out, elements);
    }
}

/// Appends elements, of which the first has this rank, until so many bytes are there.
fn sequence<T>(
    out: &mut Vec<u8>,
    (mut rank, end): (u64, usize),
    elements: impl Iterator<Item = T>,
    write: impl Fn(&mut Vec<u8>, T),
) -> Option<u64> {
    for element in elements {
        if out.len() >= end {
            return Some(rank);
        }
        write(out, element);
        rank += 1;
    }
    None
}

/// Appends what a scan visits from a position on, until so many bytes are there.
fn scanned(
    out: &mut Vec<u8>,
    (position, end): (u64, usize),
    scan: impl Fn(&mut Vec<u8>, u64) -> Option<u64>,
) -> Option<u64> {
    let mut next = Some(position);
    while let Some(position) = next {
        next = scan(out, position);
        if out.len() >= end {
            break;
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, read_value};
    use zodium_keyspace::{Hash, List, Set, SortedSet, Value};

    /// A value of each kind that has elements.
    fn values(elements: u32) -> [Value; 4] {
        let (mut list, mut set) = (List::default(), Set::default());
        let (mut scores, mut hash) = (SortedSet::default(), Hash::default());
        for number in 0..elements {
            let word = number.to_string();
            list.push_back(word.as_bytes());
            set.add(word.as_bytes());
            scores.set(word.as_bytes(), f64::from(number % 7));
            hash.set(word.as_bytes(), b"value");
        }
        [Value::List(list), Value::Set(set), Value::SortedSet(scores), Value::Hash(hash)]
    }

    #[test]
    fn parts_are_the_whole() {
        for elements in [1, 2, 100, 5000] {
            for value in values(elements) {
                let mut whole = Vec::new();
                write_value(&mut whole, value.as_ref());
                let (mut parts, mut count) = (Vec::new(), 0);
                let mut place = None;
                loop {
                    let before = parts.len();
                    place = write_part(&mut parts, value.as_ref(), place, 1000);
                    count += 1;
                    // The last group of a table comes as a whole.
                    assert!(parts.len() - before < 1500);
                    if place.is_none() {
                        break;
                    }
                }
                assert!(parts == whole && (count > 10) == (elements == 5000), "{count}");
                let mut rest = &parts[1..];
                let read = read_value(parts[0], &mut Input::new(&mut rest)).unwrap();
                let again = |value: &Value| {
                    let mut bytes = Vec::new();
                    write_value(&mut bytes, value.as_ref());
                    bytes.sort_unstable();
                    bytes
                };
                assert!(again(&read) == again(&value));
            }
        }
    }
}
