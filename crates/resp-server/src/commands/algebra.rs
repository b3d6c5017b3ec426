//! Unions, intersections and differences of sets.

use zodium_keyspace::{Entry, Kind, Set};

use crate::call::{Call, Options, integer, is, positive};
use crate::events::Class;
use crate::fail::{Fail, Outcome, SYNTAX};

type Words<'a> = zodium_resp::Arguments<'a>;

pub(super) fn sinter(call: &mut Call) -> Outcome {
    answer(call, inter)
}

pub(super) fn sunion(call: &mut Call) -> Outcome {
    answer(call, union)
}

pub(super) fn sdiff(call: &mut Call) -> Outcome {
    answer(call, diff)
}

pub(super) fn sinterstore(call: &mut Call) -> Outcome {
    store(call, inter, "sinterstore")
}

pub(super) fn sunionstore(call: &mut Call) -> Outcome {
    store(call, union, "sunionstore")
}

pub(super) fn sdiffstore(call: &mut Call) -> Outcome {
    store(call, diff, "sdiffstore")
}

type Operation = fn(&Call, Words) -> Result<Set, Fail>;

fn answer(call: &mut Call, operation: Operation) -> Outcome {
    let set = operation(call, call.arguments.from(1))?;
    call.reply.set(set.len());
    set.iter().for_each(|member| call.reply.bulk(member));
    Ok(())
}

fn store(call: &mut Call, operation: Operation, event: &str) -> Outcome {
    let set = operation(call, call.arguments.from(2))?;
    let (target, length) = (call.word(1), set.len());
    if length > 0 {
        call.hold.put(target, Entry::new(set.into_value()));
        call.changed(target, Class::Set, event);
    } else {
        call.remove(target);
    }
    call.reply.count(length);
    Ok(())
}

/// The sets of keys; those that are not there are empty.
fn sets<'a>(call: &'a Call, keys: Words) -> Result<Vec<Option<&'a Set>>, Fail> {
    keys.iter().map(|key| Ok(call.hold.read::<Set>(key)?)).collect()
}

fn inter(call: &Call, keys: Words) -> Result<Set, Fail> {
    let mut found = Set::default();
    for_each_common(&sets(call, keys)?, |member| {
        found.add(member);
        true
    });
    Ok(found)
}

/// Visits what is in all sets, until `visit` says that it is enough.
fn for_each_common(sets: &[Option<&Set>], mut visit: impl FnMut(&[u8]) -> bool) {
    let sets: Option<Vec<&Set>> = sets.iter().copied().collect();
    let Some(mut sets) = sets else { return };
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else { return };
    for member in smallest.iter() {
        if others.iter().all(|set| set.contains(member)) && !visit(member) {
            return;
        }
    }
}

fn union(call: &Call, keys: Words) -> Result<Set, Fail> {
    let sets = sets(call, keys)?;
    Ok(sets.into_iter().flatten().flat_map(Set::iter).collect())
}

fn diff(call: &Call, keys: Words) -> Result<Set, Fail> {
    let sets = sets(call, keys)?;
    let Some((Some(first), others)) = sets.split_first() else { return Ok(Set::default()) };
    let is_elsewhere = |member: &[u8]| others.iter().flatten().any(|set| set.contains(member));
    Ok(first.iter().filter(|member| !is_elsewhere(member)).collect())
}

pub(super) fn sintercard(call: &mut Call) -> Outcome {
    let error = Fail::fixed("ERR numkeys should be greater than 0");
    let count = positive(call.word(1), error)?;
    if count > call.len() - 2 {
        return Err(Fail::fixed("ERR Number of keys can't be greater than number of args"));
    }
    let limit = limit(call, 2 + count)?;
    let sets: Result<Vec<_>, Fail> = (2..2 + count)
        .map(|place| Ok(call.hold.read::<Set>(call.arguments.word(place))?))
        .collect();
    let mut common = 0;
    for_each_common(&sets?, |_| {
        common += 1;
        common < limit
    });
    call.reply.count(common);
    Ok(())
}

/// The `LIMIT` of a count, from a place on; 0 for none is the largest number.
pub(super) fn limit(call: &Call, place: usize) -> Result<usize, Fail> {
    let mut options = Options::from(call.arguments, place);
    let mut limit = 0;
    while let Some(word) = options.next() {
        if !is(word, "limit") || options.left() == 0 {
            return Err(SYNTAX);
        }
        let number = integer(options.value()?).ok().and_then(|number| usize::try_from(number).ok());
        limit = number.ok_or(Fail::fixed("ERR LIMIT can't be negative"))?;
    }
    Ok(if limit == 0 { usize::MAX } else { limit })
}
