//! Hashes: `HSET`, `HGET` and the like.

use std::collections::HashSet;

use zodium_keyspace::Hash;
use zodium_resp::{parse_double, parse_integer};

use super::counters::sum;
use crate::call::{Call, is};
use crate::events::Class;
use crate::fail::{
    ANSWER_TOO_LONG, Fail, NAN, NO_FLOAT, NOT_POSITIVE, OUT_OF_RANGE, OVERFLOW, Outcome, SYNTAX,
};
use crate::reply::Reply;

/// Most elements that a command chooses of a few again and again.
const REPEATS_MAX: i64 = 1 << 20;
/// A smaller share of a collection is drawn one by one: that is less work than a walk through all.
const SPARSE_SHARE: usize = 32;

fn read<'a>(call: &'a Call) -> Result<Option<&'a Hash>, Fail> {
    Ok(call.hold.read::<Hash>(call.word(1))?)
}

pub(super) fn hset(call: &mut Call) -> Outcome {
    let added = set_fields(call, "hset")?;
    call.reply.count(added);
    Ok(())
}

pub(super) fn hmset(call: &mut Call) -> Outcome {
    set_fields(call, "hmset")?;
    call.reply.ok();
    Ok(())
}

fn set_fields(call: &mut Call, name: &str) -> Result<usize, Fail> {
    let (key, fields) = (call.word(1), call.arguments.from(2));
    if !fields.len().is_multiple_of(2) {
        return Err(Fail::arity(name));
    }
    let hash = call.hold.make::<Hash>(key)?;
    let mut added = 0;
    for place in (0..fields.len()).step_by(2) {
        added += usize::from(hash.set(fields.word(place), fields.word(place + 1)));
    }
    call.changed(key, Class::Hash, "hset");
    Ok(added)
}

pub(super) fn hsetnx(call: &mut Call) -> Outcome {
    let (key, field, value) = (call.word(1), call.word(2), call.word(3));
    let hash = call.hold.make::<Hash>(key)?;
    let is_new = hash.get(field).is_none();
    if is_new {
        hash.set(field, value);
        call.changed(key, Class::Hash, "hset");
    }
    call.reply.flag(is_new);
    Ok(())
}

pub(super) fn hget(call: &mut Call) -> Outcome {
    let hash = call.hold.read::<Hash>(call.word(1))?;
    call.reply.bulk_or_null(hash.and_then(|hash| hash.get(call.arguments.word(2))));
    Ok(())
}

pub(super) fn hmget(call: &mut Call) -> Outcome {
    let hash = call.hold.read::<Hash>(call.word(1))?;
    let fields = call.arguments.from(2);
    call.reply.array(fields.len());
    for field in fields.iter() {
        call.reply.bulk_or_null(hash.and_then(|hash| hash.get(field)));
    }
    Ok(())
}

pub(super) fn hdel(call: &mut Call) -> Outcome {
    let key = call.word(1);
    let Some(hash) = call.hold.write::<Hash>(key)? else {
        call.reply.count(0);
        return Ok(());
    };
    let fields = call.arguments.from(2).iter();
    let removed = fields.filter(|field| hash.remove(field)).count();
    if removed > 0 {
        call.changed(key, Class::Hash, "hdel");
        call.remove_if_empty::<Hash>(key);
    }
    call.reply.count(removed);
    Ok(())
}

pub(super) fn hlen(call: &mut Call) -> Outcome {
    let length = read(call)?.map_or(0, Hash::len);
    call.reply.count(length);
    Ok(())
}

pub(super) fn hexists(call: &mut Call) -> Outcome {
    let is_there = read(call)?.is_some_and(|hash| hash.get(call.word(2)).is_some());
    call.reply.flag(is_there);
    Ok(())
}

pub(super) fn hstrlen(call: &mut Call) -> Outcome {
    let value = read(call)?.and_then(|hash| hash.get(call.word(2)));
    let length = value.map_or(0, |value| value.len());
    call.reply.count(length);
    Ok(())
}

pub(super) fn hgetall(call: &mut Call) -> Outcome {
    let hash = call.hold.read::<Hash>(call.word(1))?;
    call.reply.map(hash.map_or(0, Hash::len));
    for (field, value) in hash.into_iter().flat_map(Hash::iter) {
        call.reply.bulk(field);
        call.reply.bulk(value);
    }
    Ok(())
}

pub(super) fn hkeys(call: &mut Call) -> Outcome {
    answer_each(call, |(field, _)| field)
}

pub(super) fn hvals(call: &mut Call) -> Outcome {
    answer_each(call, |(_, value)| value)
}

/// A field and its value.
type Pair<'a> = (&'a [u8], &'a [u8]);

fn answer_each(call: &mut Call, part: for<'a> fn(Pair<'a>) -> &'a [u8]) -> Outcome {
    let hash = call.hold.read::<Hash>(call.word(1))?;
    call.reply.array(hash.map_or(0, Hash::len));
    for entry in hash.into_iter().flat_map(Hash::iter) {
        call.reply.bulk(part(entry));
    }
    Ok(())
}

pub(super) fn hincrby(call: &mut Call) -> Outcome {
    let (key, field, by) = (call.word(1), call.word(2), call.integer(3)?);
    let old = match call.hold.read::<Hash>(key)?.and_then(|hash| hash.get(field)) {
        Some(old) => parse_integer(old).ok_or(Fail::fixed("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = old.checked_add(by).ok_or(OVERFLOW)?;
    call.hold.make::<Hash>(key)?.set(field, sum.to_string().as_bytes());
    call.changed(key, Class::Hash, "hincrby");
    call.reply.integer(sum);
    Ok(())
}

pub(super) fn hincrbyfloat(call: &mut Call) -> Outcome {
    let (key, field, by) = (call.word(1), call.word(2), call.word(3));
    let number = parse_double(by).ok_or(NO_FLOAT)?;
    if !number.is_finite() {
        return Err(Fail::fixed("ERR value is NaN or Infinity"));
    }
    let old = call.hold.read::<Hash>(key)?.and_then(|hash| hash.get(field));
    let old = old.map_or(&b"0"[..], |old| old);
    if parse_double(old).is_none() {
        return Err(Fail::fixed("ERR hash value is not a float"));
    }
    let sum = sum(old, by).map_err(|_| NAN)?;
    call.log_instead([&b"hset"[..], key, field, sum.as_bytes()]);
    call.hold.make::<Hash>(key)?.set(field, sum.as_bytes());
    call.changed(key, Class::Hash, "hincrbyfloat");
    call.reply.text(&sum);
    Ok(())
}

pub(super) fn hrandfield(call: &mut Call) -> Outcome {
    let key = call.word(1);
    if call.len() == 2 {
        let field = call.hold.read::<Hash>(key)?.and_then(|hash| hash.random());
        call.reply.bulk_or_null(field.map(|(field, _)| field));
        return Ok(());
    }
    let (count, with_values) = random_count(call, "withvalues")?;
    let hash = call.hold.read::<Hash>(key)?;
    let found =
        hash.map(|hash| choose(count, hash.len(), hash.iter(), || hash.random(), |pair| pair.0));
    let lengths = found.iter().flatten().map(|(field, value)| field.len() + value.len());
    check_answer(call, count, lengths)?;
    answer_pairs(with_values, &mut call.reply, &found.unwrap_or_default(), |reply, pair| {
        reply.bulk(pair.0);
        if with_values {
            reply.bulk(pair.1);
        }
    });
    Ok(())
}

/// The count of a command that chooses elements, and whether it asks for their values.
pub(super) fn random_count(call: &Call, option: &str) -> Result<(i64, bool), Fail> {
    let count = call.integer(2)?;
    let with_values = match call.len() {
        3 => false,
        4 if is(call.word(3), option) => true,
        _ => return Err(SYNTAX),
    };
    let half = i64::MAX / 2;
    if with_values && count > half {
        return Err(OUT_OF_RANGE);
    }
    check_repeats(count)?;
    Ok((count, with_values))
}

/// Checks a count of elements to choose: a negative one may give each any number of times.
pub(super) fn check_repeats(count: i64) -> Outcome {
    if count < -REPEATS_MAX { Err(OUT_OF_RANGE) } else { Ok(()) }
}

/// Checks the lengths of elements that were chosen, if they may be the same ones again and again.
pub(super) fn check_answer(
    call: &Call,
    count: i64,
    lengths: impl Iterator<Item = usize>,
) -> Outcome {
    if count < 0 && lengths.sum::<usize>() > call.server.settings.bulk_bytes_max() {
        return Err(ANSWER_TOO_LONG);
    }
    Ok(())
}

/// Chooses elements: each at most once, or with a negative count any number of times. No two have
/// the same name.
pub(super) fn choose<'a, T: Copy>(
    count: i64,
    length: usize,
    all: impl Iterator<Item = T>,
    mut random: impl FnMut() -> Option<T>,
    name: impl Fn(&T) -> &'a [u8],
) -> Vec<T> {
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count < 0 {
        return std::iter::from_fn(&mut random).take(wanted).collect();
    }
    if wanted >= length {
        return all.collect();
    }
    if wanted < length / SPARSE_SHARE {
        let mut drawn = HashSet::with_capacity(wanted);
        let new = std::iter::from_fn(random).filter(|element| drawn.insert(name(element)));
        return new.take(wanted).collect();
    }
    // Exchanges what is chosen with what is left: each subset is equally likely.
    let mut all: Vec<T> = all.collect();
    for place in 0..wanted {
        let other = place + zodium_keyspace::random_below(all.len() - place);
        all.swap(place, other);
    }
    all.truncate(wanted);
    all
}

/// Answers elements, or pairs: in RESP3 each an array of its own.
pub(super) fn answer_pairs<T: Copy>(
    are_pairs: bool,
    reply: &mut Reply,
    found: &[T],
    write: impl Fn(&mut Reply, T),
) {
    let is_nested = are_pairs && reply.is_resp3();
    reply.array(found.len() * if are_pairs && !is_nested { 2 } else { 1 });
    for element in found {
        if is_nested {
            reply.array(2);
        }
        write(reply, *element);
    }
}

/// A count that may be left out, and must not be negative.
pub(super) fn count_or_one(call: &Call, place: usize) -> Result<Option<usize>, Fail> {
    if call.len() <= place {
        return Ok(None);
    }
    let count = usize::try_from(call.integer(place).map_err(|_| NOT_POSITIVE)?);
    count.map(Some).map_err(|_| NOT_POSITIVE)
}

#[cfg(test)]
mod tests {
    use std::iter;

    use zodium_keyspace::random_below;

    use super::*;

    /// What is chosen of the numbers below 100. `walks` says whether all may be looked at.
    fn chosen(count: i64, walks: bool) -> Vec<u8> {
        let words: Vec<[u8; 1]> = (0..100).map(|number| [number]).collect();
        let all = words.iter().inspect(|_| assert!(walks, "a walk through all"));
        let random = || words.get(random_below(words.len()));
        let found = choose(count, words.len(), all, random, |word| &word[..]);
        found.into_iter().map(|word| word[0]).collect()
    }

    #[test]
    fn a_positive_count_gives_distinct_elements_and_a_small_one_draws_only_them() {
        for (count, walks) in [(0, false), (1, false), (2, false), (3, true), (99, true)] {
            for _ in 0..200 {
                let found: HashSet<u8> = chosen(count, walks).into_iter().collect();
                assert_eq!(found.len() as i64, count);
            }
        }
        assert_eq!(chosen(500, true), (0..100).collect::<Vec<_>>());
        assert_eq!(chosen(-500, false).len(), 500);
    }

    #[test]
    fn each_place_of_what_is_chosen_is_fair() {
        for count in [2, 50] {
            let mut counts = [[0_u32; 100]; 2];
            for found in iter::repeat_with(|| chosen(count, true)).take(50_000) {
                counts[0][usize::from(found[0])] += 1;
                counts[1][usize::from(found[1])] += 1;
            }
            let is_fair = |count: &u32| (380..620).contains(count);
            assert!(counts.as_flattened().iter().all(is_fair), "{count}: {counts:?}");
        }
    }
}
