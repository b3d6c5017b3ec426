//! `SORT` and `SORT_RO`: elements in order of themselves, or of what other keys have for them.

use std::cmp::Ordering;
use std::ops::Range;

use zodium_keyspace::{Entry, Hash, Hold, Value, ValueRef, Word};
use zodium_resp::{Arguments, parse_double};

use super::strings::read;
use crate::call::{Blocking, Call, Options, integer, is};
use crate::events::Class;
use crate::fail::{ANSWER_TOO_LONG, Fail, Outcome, SYNTAX, WRONG_TYPE};
use crate::objects;

/// What a command asks for.
#[derive(Default)]
struct Order<'a> {
    by: Option<&'a [u8]>,
    gets: Vec<&'a [u8]>,
    limit: Option<(i64, i64)>,
    is_descending: bool,
    is_alphabetic: bool,
    target: Option<&'a [u8]>,
}

impl<'a> Order<'a> {
    fn of(call: &Call<'a, '_>, is_readonly: bool) -> Result<Order<'a>, Fail> {
        let mut order = Order::default();
        let mut options = Options::from(call.arguments, 2);
        while let Some(word) = options.next() {
            if is(word, "asc") {
                order.is_descending = false;
            } else if is(word, "desc") {
                order.is_descending = true;
            } else if is(word, "alpha") {
                order.is_alphabetic = true;
            } else if is(word, "limit") && options.left() >= 2 {
                order.limit = Some((integer(options.value()?)?, integer(options.value()?)?));
            } else if is(word, "by") && options.left() > 0 {
                order.by = Some(options.value()?);
            } else if is(word, "get") && options.left() > 0 {
                order.gets.push(options.value()?);
            } else if is(word, "store") && options.left() > 0 && !is_readonly {
                let target = options.value()?;
                if objects::is_name(call.server, target) {
                    return Err(objects::READ_ONLY);
                }
                order.target = Some(target);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(order)
    }

    /// The places that `LIMIT` leaves of so many.
    fn limited(&self, length: usize) -> Range<usize> {
        let Some((start, limit)) = self.limit else { return 0..length };
        let start = usize::try_from(start).unwrap_or(0).min(length);
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        start..start.saturating_add(most).min(length)
    }

    /// Whether the elements stay in the order in which they are.
    fn keeps(&self) -> bool {
        self.by.is_some_and(|by| !by.contains(&b'*'))
    }
}

/// The key that a request stores its answer at.
pub(super) fn target(arguments: Arguments<'_>) -> Option<&[u8]> {
    let (mut options, mut target) = (Options::from(arguments, 2), None);
    while let Some(word) = options.next() {
        let values = match () {
            () if is(word, "limit") => 2,
            () if is(word, "by") || is(word, "get") => 1,
            () if is(word, "store") => {
                target = options.next().or(target);
                0
            }
            () => 0,
        };
        for _ in 0..values {
            options.next();
        }
    }
    target
}

/// What an element is compared by.
#[derive(Clone, Debug, PartialEq)]
enum Weight {
    Number(f64),
    /// `None`: the key is not there. It comes first.
    Text(Option<Vec<u8>>),
}

pub(super) fn sort(call: &mut Call) -> Outcome {
    run(call, false)
}

pub(super) fn sort_ro(call: &mut Call) -> Outcome {
    run(call, true)
}

fn run(call: &mut Call, is_readonly: bool) -> Outcome {
    let mut order = Order::of(call, is_readonly)?;
    let entry = call.hold.find(call.word(1));
    let is_unordered = entry.is_some_and(|entry| matches!(entry.value(), ValueRef::Set(_)));
    // A set has no order: what is stored, or seen by a script, must not change by chance.
    let is_within = call.blocking == Blocking::Never;
    if is_unordered && order.keeps() && (order.target.is_some() || is_within) {
        (order.by, order.is_alphabetic) = (None, true);
    }
    let mut chosen = Vec::new();
    if let Some(entry) = entry {
        call.hold.note_use(entry);
        chosen = elements(entry.value(), &order)?;
    }
    if !order.keeps() {
        let bytes_max = call.server.settings.bulk_bytes_max();
        chosen = sorted(call.hold, &order, (chosen, is_unordered), bytes_max)?;
        let places = order.limited(chosen.len());
        chosen.truncate(places.end);
        chosen.drain(..places.start);
    }
    let mut answers: Vec<Option<Vec<u8>>> = Vec::new();
    let mut left = call.server.settings.bulk_bytes_max();
    for element in &chosen {
        if order.gets.is_empty() {
            answers.push(Some(element.to_vec()));
        }
        for get in &order.gets {
            let found = looked_up(call.hold, get, element);
            spend(&mut left, found.as_deref())?;
            answers.push(found);
        }
    }
    match order.target {
        Some(target) => store(call, target, answers),
        None => {
            call.reply.array(answers.len());
            answers.iter().for_each(|answer| call.reply.bulk_or_null(answer.as_ref()));
        }
    }
    Ok(())
}

/// The elements of a value: all to be sorted, or those that are answered, if their order stays.
fn elements(value: ValueRef, order: &Order) -> Result<Vec<Word>, Fail> {
    let length = match value {
        ValueRef::List(list) => list.len(),
        ValueRef::Set(set) => set.len(),
        ValueRef::SortedSet(set) => set.len(),
        _ => return Err(WRONG_TYPE),
    };
    let places = if order.keeps() { order.limited(length) } else { 0..length };
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let (skipped, count) = (places.start, places.len());
    let is_reverse = order.keeps() && order.is_descending;
    Ok(match value {
        ValueRef::List(list) if is_reverse => {
            list.range(length - places.end..length - skipped).rev().map(Word::from).collect()
        }
        ValueRef::List(list) => list.range(places).map(Word::from).collect(),
        ValueRef::SortedSet(set) if is_reverse => {
            let members = set.downwards(length - 1 - skipped).take(count);
            members.map(|(member, _)| member.into()).collect()
        }
        ValueRef::SortedSet(set) => {
            set.upwards(skipped).take(count).map(|(member, _)| member.into()).collect()
        }
        ValueRef::Set(set) => set.iter().skip(skipped).take(count).map(Word::from).collect(),
        _ => Vec::new(),
    })
}

/// Sorts elements. Those of a set are compared themselves where weights are equal: its own order
/// is another one after a restart, so the log would store other elements.
fn sorted(
    hold: &Hold,
    order: &Order,
    (elements, is_unordered): (Vec<Word>, bool),
    bytes_max: usize,
) -> Result<Vec<Word>, Fail> {
    let mut left = bytes_max;
    let mut weighted = Vec::with_capacity(elements.len());
    for element in elements {
        let text = match order.by {
            Some(pattern) => {
                let found = looked_up(hold, pattern, &element);
                spend(&mut left, found.as_deref())?;
                found
            }
            None => Some(element.to_vec()),
        };
        let weight = match (order.is_alphabetic, text) {
            (true, text) => Weight::Text(text),
            (false, None) => Weight::Number(0.0),
            (false, Some(text)) => {
                let error = "ERR One or more scores can't be converted into double";
                Weight::Number(parse_double(&text).ok_or(Fail::fixed(error))?)
            }
        };
        weighted.push((weight, element));
    }
    weighted.sort_by(|one, other| {
        let found = compare(one, other, order.by.is_some());
        let found = if is_unordered { found.then_with(|| one.1.cmp(&other.1)) } else { found };
        if order.is_descending { found.reverse() } else { found }
    });
    Ok(weighted.into_iter().map(|(_, element)| element).collect())
}

fn compare(one: &(Weight, Word), other: &(Weight, Word), is_by_other_keys: bool) -> Ordering {
    match (&one.0, &other.0) {
        (Weight::Number(a), Weight::Number(b)) => a.total_cmp(b).then_with(|| one.1.cmp(&other.1)),
        (Weight::Text(a), Weight::Text(b)) if is_by_other_keys => a.cmp(b),
        _ => one.1.cmp(&other.1),
    }
}

/// Counts what was looked up against the bytes that are left: one long string may be found for each
/// element.
fn spend(left: &mut usize, found: Option<&[u8]>) -> Outcome {
    let bytes = size_of::<Option<Vec<u8>>>() + found.map_or(0, <[u8]>::len);
    *left = left.checked_sub(bytes).ok_or(ANSWER_TOO_LONG)?;
    Ok(())
}

/// What a pattern says of an element: the element itself for `#`, a string, or a field of a hash.
/// The star of a pattern stands for the element.
fn looked_up(hold: &Hold, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let star = pattern.iter().position(|byte| *byte == b'*')?;
    let (before, after) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = after.windows(2).position(|two| two == b"->");
    let arrow = arrow.filter(|place| place + 2 < after.len());
    let key = [before, element, &after[..arrow.unwrap_or(after.len())]].concat();
    match arrow {
        Some(place) => {
            let hash = hold.read::<Hash>(&key).ok()??;
            hash.get(&after[place + 2..]).map(|value| value.to_vec())
        }
        None => read(hold, &key).ok()?.map(|text| text.to_vec()),
    }
}

fn store(call: &mut Call, target: &[u8], answers: Vec<Option<Vec<u8>>>) {
    let count = answers.len();
    if count == 0 {
        call.remove(target);
    } else {
        let words = answers.into_iter().map(|answer| answer.unwrap_or_default().into());
        call.hold.put(target, Entry::new(Value::List(words.collect())));
        call.changed(target, Class::List, "sortstore");
    }
    call.reply.count(count);
}

#[cfg(test)]
mod tests {
    use zodium_keyspace::{Set, SortedSet};

    use super::*;

    #[test]
    fn only_elements_within_the_limit_are_taken_if_their_order_stays() {
        let words: Vec<Word> = (0..100_u8).map(|number| [number].into()).collect();
        let list = Value::List(words.iter().cloned().collect());
        let (mut set, mut sorted_set) = (Set::default(), SortedSet::default());
        for word in &words {
            set.add(word);
            sorted_set.set(word, f64::from(word[0]));
        }
        let members: Vec<Word> = set.iter().map(Word::from).collect();
        let (set, sorted_set) = (Value::Set(set), Value::SortedSet(sorted_set));
        let limits =
            [0, 7, 98, 100, 200, -3].map(|start| [0, 5, 100, -1].map(|count| (start, count)));
        for limit in limits.into_iter().flatten() {
            for is_descending in [false, true] {
                let by = Some(&b"nosort"[..]);
                let order = Order { by, limit: Some(limit), is_descending, ..Order::default() };
                let expected = |words: &[Word], turns: bool| {
                    let mut words = words.to_vec();
                    if turns && is_descending {
                        words.reverse();
                    }
                    let skipped = usize::try_from(limit.0).unwrap_or(0);
                    let most = usize::try_from(limit.1).unwrap_or(usize::MAX);
                    words.into_iter().skip(skipped).take(most).collect::<Vec<_>>()
                };
                let taken = |value: &Value| elements(value.as_ref(), &order).unwrap();
                assert_eq!(taken(&list), expected(&words, true), "{limit:?}");
                assert_eq!(taken(&sorted_set), expected(&words, true), "{limit:?}");
                assert_eq!(taken(&set), expected(&members, false), "{limit:?}");
                let sorts = Order { limit: Some(limit), ..Order::default() };
                assert_eq!(elements(list.as_ref(), &sorts).unwrap(), words);
            }
        }
    }
}
