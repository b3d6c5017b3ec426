//! Lists: moving elements, popping from the first of several lists, and waiting for elements.

use zodium_keyspace::{List, Word};
use zodium_resp::parse_double;

use super::lists::{End, take};
use crate::call::{Call, Options, is, positive};
use crate::events::Class;
use crate::fail::{Fail, Outcome, SYNTAX};

/// A time to wait, in seconds; 0 for ever.
pub(super) fn timeout(word: &[u8]) -> Result<f64, Fail> {
    let seconds = parse_double(word);
    let seconds = seconds.ok_or(Fail::fixed("ERR timeout is not a float or out of range"))?;
    if seconds < 0.0 {
        return Err(Fail::fixed("ERR timeout is negative"));
    }
    // The stock server counts milliseconds.
    if seconds * 1000.0 > i64::MAX as f64 / 2.0 {
        return Err(Fail::fixed("ERR timeout is out of range"));
    }
    Ok(seconds)
}

/// Whether a key has a list.
fn has_list(call: &Call, key: &[u8]) -> Result<bool, Fail> {
    Ok(call.hold.read::<List>(key)?.is_some())
}

pub(super) fn blpop(call: &mut Call) -> Outcome {
    blocking_pop(call, End::Left)
}

pub(super) fn brpop(call: &mut Call) -> Outcome {
    blocking_pop(call, End::Right)
}

fn blocking_pop(call: &mut Call, end: End) -> Outcome {
    let last = call.len() - 1;
    let seconds = timeout(call.word(last))?;
    for place in 1..last {
        let key = call.word(place);
        if has_list(call, key)? {
            let taken = take(call, key, end, 1)?.unwrap_or_default();
            call.reply.array(2);
            call.reply.bulk(key);
            call.reply.bulk_or_null(taken.first());
            return Ok(());
        }
    }
    call.wait(seconds, true);
    Ok(())
}

pub(super) fn lmpop(call: &mut Call) -> Outcome {
    if !pop_of_several(call, 1)? {
        call.reply.null_array();
    }
    Ok(())
}

pub(super) fn blmpop(call: &mut Call) -> Outcome {
    let seconds = timeout(call.word(1))?;
    if !pop_of_several(call, 2)? {
        call.wait(seconds, true);
    }
    Ok(())
}

/// The keys that a number at this place counts, and the place behind them.
pub(super) fn counted_keys(call: &Call, place: usize) -> Result<std::ops::Range<usize>, Fail> {
    let keys = positive(call.word(place), Fail::fixed("ERR numkeys should be greater than 0"))?;
    let (first, end) = (place + 1, keys.saturating_add(place + 1));
    // There is at least a word behind the keys.
    if end >= call.len() { Err(SYNTAX) } else { Ok(first..end) }
}

/// The `COUNT` of a pop, from a place on.
pub(super) fn pop_count(call: &Call, place: usize) -> Result<usize, Fail> {
    let mut options = Options::from(call.arguments, place);
    let mut count = None;
    while let Some(word) = options.next() {
        if !is(word, "count") || count.is_some() {
            return Err(SYNTAX);
        }
        let error = Fail::fixed("ERR count should be greater than 0");
        count = Some(positive(options.value()?, error)?);
    }
    Ok(count.unwrap_or(1))
}

fn pop_of_several(call: &mut Call, place: usize) -> Result<bool, Fail> {
    let keys = counted_keys(call, place)?;
    let end = End::of(call.word(keys.end))?;
    let count = pop_count(call, keys.end + 1)?;
    for key in keys.map(|place| call.word(place)) {
        if has_list(call, key)? {
            let taken = take(call, key, end, count)?.unwrap_or_default();
            call.reply.array(2);
            call.reply.bulk(key);
            call.reply.words(&taken);
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn lmove(call: &mut Call) -> Outcome {
    let (from, to) = (End::of(call.word(3))?, End::of(call.word(4))?);
    move_or(call, from, to, |call| call.reply.null())
}

pub(super) fn rpoplpush(call: &mut Call) -> Outcome {
    move_or(call, End::Right, End::Left, |call| call.reply.null())
}

pub(super) fn blmove(call: &mut Call) -> Outcome {
    let (from, to) = (End::of(call.word(3))?, End::of(call.word(4))?);
    let seconds = timeout(call.word(5))?;
    move_or(call, from, to, |call| call.wait(seconds, false))
}

pub(super) fn brpoplpush(call: &mut Call) -> Outcome {
    let seconds = timeout(call.word(3))?;
    move_or(call, End::Right, End::Left, |call| call.wait(seconds, false))
}

fn move_or(call: &mut Call, from: End, to: End, otherwise: impl FnOnce(&mut Call)) -> Outcome {
    let (source, target) = (call.word(1), call.word(2));
    if !has_list(call, source)? {
        otherwise(call);
        return Ok(());
    }
    // Before anything is taken.
    call.hold.read::<List>(target)?;
    let element = move_one(call, (source, from), (target, to))?;
    call.reply.bulk_or_null(element);
    Ok(())
}

fn move_one(
    call: &mut Call,
    (source, from): (&[u8], End),
    (target, to): (&[u8], End),
) -> Result<Option<Word>, Fail> {
    if source == target {
        // The key stays, also while its only element is moved.
        let Some(list) = call.hold.write::<List>(source)? else { return Ok(None) };
        let Some(element) = from.pop(list) else { return Ok(None) };
        to.push(list, &element);
        call.changed(target, Class::List, to.push_event());
        call.announce(source, Class::List, from.pop_event());
        return Ok(Some(element));
    }
    let Some(list) = call.hold.write::<List>(source)? else { return Ok(None) };
    let Some(element) = from.pop(list) else { return Ok(None) };
    to.push(call.hold.make::<List>(target)?, &element);
    // The stock server announces the push first.
    call.changed(target, Class::List, to.push_event());
    call.changed(source, Class::List, from.pop_event());
    call.remove_if_empty::<List>(source);
    // Both together are one change.
    call.hold.changes -= 1;
    Ok(Some(element))
}
