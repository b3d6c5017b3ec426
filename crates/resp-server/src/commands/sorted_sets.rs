//! Sorted sets: adding, removing, and popping members.

use std::sync::Arc;

use zodium_keyspace::{Score, SortedSet};
use zodium_resp::parse_double;

use super::hashes::{answer_pairs, check_answer, choose, count_or_one, random_count};
use super::list_moves::{counted_keys, pop_count, timeout};
use crate::call::{Call, double, is};
use crate::events::Class;
use crate::fail::{Fail, Outcome, SYNTAX};

const NAN: Fail = Fail::fixed("ERR resulting score is not a number (NaN)");

/// The options of `ZADD`.
#[derive(Clone, Copy, Default)]
struct AddOptions {
    only_new: bool,
    only_old: bool,
    only_greater: bool,
    only_less: bool,
    counts_changes: bool,
    increments: bool,
}

/// The options, and where the pairs of score and member begin.
fn add_options(call: &Call) -> Result<(AddOptions, usize), Fail> {
    let mut found = AddOptions::default();
    let mut place = 2;
    while place < call.len() {
        let word = call.word(place);
        let option = [
            ("nx", &mut found.only_new),
            ("xx", &mut found.only_old),
            ("gt", &mut found.only_greater),
            ("lt", &mut found.only_less),
            ("ch", &mut found.counts_changes),
            ("incr", &mut found.increments),
        ];
        let Some((_, is_set)) = option.into_iter().find(|(name, _)| is(word, name)) else { break };
        *is_set = true;
        place += 1;
    }
    let words = call.len() - place;
    if words == 0 || !words.is_multiple_of(2) {
        return Err(SYNTAX);
    }
    if found.only_new && found.only_old {
        return Err(Fail::fixed("ERR XX and NX options at the same time are not compatible"));
    }
    let compares = u8::from(found.only_greater) + u8::from(found.only_less);
    if compares + u8::from(found.only_new) > 1 {
        return Err(Fail::fixed(
            "ERR GT, LT, and/or NX options at the same time are not compatible",
        ));
    }
    if found.increments && words > 2 {
        return Err(Fail::fixed("ERR INCR option supports a single increment-element pair"));
    }
    Ok((found, place))
}

/// What became of a member.
#[derive(Clone, Copy, PartialEq)]
enum Added {
    New(Score),
    Changed(Score),
    Same(Score),
    Refused,
}

impl AddOptions {
    fn add(self, set: &mut SortedSet, member: &[u8], score: Score) -> Result<Added, Fail> {
        let Some(old) = set.score(member) else {
            if self.only_old {
                return Ok(Added::Refused);
            }
            set.set(member, score);
            return Ok(Added::New(score));
        };
        if self.only_new {
            return Ok(Added::Refused);
        }
        let score = if self.increments { old + score } else { score };
        if score.is_nan() {
            return Err(NAN);
        }
        if self.only_greater && score <= old || self.only_less && score >= old {
            return Ok(Added::Refused);
        }
        if score == old {
            return Ok(Added::Same(old));
        }
        set.set(member, score);
        Ok(Added::Changed(score))
    }
}

pub(super) fn zadd(call: &mut Call) -> Outcome {
    let (options, place) = add_options(call)?;
    add(call, options, place)
}

pub(super) fn zincrby(call: &mut Call) -> Outcome {
    add(call, AddOptions { increments: true, ..AddOptions::default() }, 2)
}

fn add(call: &mut Call, options: AddOptions, place: usize) -> Outcome {
    let (key, words) = (call.word(1), call.arguments);
    let places = (place..words.len()).step_by(2);
    // All scores are looked at before any member is added.
    let scores: Result<Vec<Score>, Fail> =
        places.clone().map(|place| double(words.word(place))).collect();
    let scores = scores?;
    let is_there = call.hold.read::<SortedSet>(key)?.is_some();
    let (mut added, mut changed, mut last) = (0, 0, Added::Refused);
    if is_there || !options.only_old {
        let set = call.hold.make::<SortedSet>(key)?;
        for (place, score) in places.zip(scores) {
            last = options.add(set, words.word(place + 1), score)?;
            added += usize::from(matches!(last, Added::New(_)));
            changed += usize::from(matches!(last, Added::New(_) | Added::Changed(_)));
        }
        call.hold.remove_if_empty::<SortedSet>(key);
    }
    if changed > 0 {
        call.changed(key, Class::SortedSet, if options.increments { "zincr" } else { "zadd" });
    }
    match (options.increments, last) {
        (true, Added::Refused) => call.reply.null(),
        (true, Added::New(score) | Added::Changed(score) | Added::Same(score)) => {
            call.reply.double(score);
        }
        (false, _) => call.reply.count(if options.counts_changes { changed } else { added }),
    }
    Ok(())
}

pub(super) fn zrem(call: &mut Call) -> Outcome {
    let key = call.word(1);
    let Some(set) = call.hold.write::<SortedSet>(key)? else {
        call.reply.count(0);
        return Ok(());
    };
    let members = call.arguments.from(2).iter();
    let removed = members.filter(|member| set.remove(member).is_some()).count();
    if removed > 0 {
        call.changed(key, Class::SortedSet, "zrem");
        call.remove_if_empty::<SortedSet>(key);
    }
    call.reply.count(removed);
    Ok(())
}

pub(super) fn zcard(call: &mut Call) -> Outcome {
    let length = call.hold.read::<SortedSet>(call.word(1))?.map_or(0, SortedSet::len);
    call.reply.count(length);
    Ok(())
}

pub(super) fn zscore(call: &mut Call) -> Outcome {
    let set = call.hold.read::<SortedSet>(call.word(1))?;
    match set.and_then(|set| set.score(call.arguments.word(2))) {
        Some(score) => call.reply.double(score),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn zmscore(call: &mut Call) -> Outcome {
    let set = call.hold.read::<SortedSet>(call.word(1))?;
    let members = call.arguments.from(2);
    call.reply.array(members.len());
    for member in members.iter() {
        match set.and_then(|set| set.score(member)) {
            Some(score) => call.reply.double(score),
            None => call.reply.null(),
        }
    }
    Ok(())
}

pub(super) fn zrank(call: &mut Call) -> Outcome {
    rank(call, "zrank", |rank, _| rank)
}

pub(super) fn zrevrank(call: &mut Call) -> Outcome {
    rank(call, "zrevrank", |rank, length| length - 1 - rank)
}

fn rank(call: &mut Call, name: &str, from: fn(usize, usize) -> usize) -> Outcome {
    let member = call.word(2);
    let with_score = match call.len() {
        3 => false,
        4 if is(call.word(3), "withscore") => true,
        4 => return Err(SYNTAX),
        _ => return Err(Fail::arity(name)),
    };
    let set = call.hold.read::<SortedSet>(call.word(1))?;
    let found = set.and_then(|set| Some((from(set.rank(member)?, set.len()), set.score(member)?)));
    match (found, with_score) {
        (None, true) => call.reply.null_array(),
        (None, false) => call.reply.null(),
        (Some((rank, _)), false) => call.reply.count(rank),
        (Some((rank, score)), true) => {
            call.reply.array(2);
            call.reply.count(rank);
            call.reply.double(score);
        }
    }
    Ok(())
}

pub(super) fn zrandmember(call: &mut Call) -> Outcome {
    let key = call.word(1);
    if call.len() == 2 {
        let member = call.hold.read::<SortedSet>(key)?.and_then(SortedSet::random);
        call.reply.bulk_or_null(member.map(|(member, _)| member));
        return Ok(());
    }
    let (count, with_scores) = random_count(call, "withscores")?;
    let set = call.hold.read::<SortedSet>(key)?;
    let found =
        set.map(|set| choose(count, set.len(), set.upwards(0), || set.random(), |pair| pair.0));
    check_answer(call, count, found.iter().flatten().map(|(member, _)| member.len()))?;
    answer_pairs(with_scores, &mut call.reply, &found.unwrap_or_default(), |reply, pair| {
        reply.bulk(pair.0);
        if with_scores {
            reply.double(pair.1);
        }
    });
    Ok(())
}

/// Which members are popped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Lowest,
    Highest,
}

/// A member behind its score.
type Popped = (Score, Arc<[u8]>);

/// Takes up to so many members; `None` if there is no sorted set.
fn take(
    call: &mut Call,
    key: &[u8],
    side: Side,
    count: usize,
) -> Result<Option<Vec<Popped>>, Fail> {
    let Some(set) = call.hold.write::<SortedSet>(key)? else { return Ok(None) };
    let count = count.min(set.len());
    let taken = match side {
        Side::Lowest => set.remove_ranks(0..count),
        Side::Highest => {
            let mut taken = set.remove_ranks(set.len() - count..set.len());
            taken.reverse();
            taken
        }
    };
    if !taken.is_empty() {
        let event = if side == Side::Lowest { "zpopmin" } else { "zpopmax" };
        call.changed(key, Class::SortedSet, event);
        call.remove_if_empty::<SortedSet>(key);
    }
    Ok(Some(taken))
}

pub(super) fn zpopmin(call: &mut Call) -> Outcome {
    pop(call, Side::Lowest)
}

pub(super) fn zpopmax(call: &mut Call) -> Outcome {
    pop(call, Side::Highest)
}

fn pop(call: &mut Call, side: Side) -> Outcome {
    if call.len() > 3 {
        return Err(SYNTAX);
    }
    let count = count_or_one(call, 2)?;
    let taken = take(call, call.word(1), side, count.unwrap_or(1))?.unwrap_or_default();
    let pairs: Vec<_> = taken.iter().map(|(score, member)| (&**member, *score)).collect();
    // Pairs of their own only where there may be several.
    let is_nested = count.is_some() && call.reply.is_resp3();
    call.reply.array(pairs.len() * if is_nested { 1 } else { 2 });
    for (member, score) in pairs {
        if is_nested {
            call.reply.array(2);
        }
        call.reply.bulk(member);
        call.reply.double(score);
    }
    Ok(())
}

/// Whether a key has a sorted set.
fn has_set(call: &Call, key: &[u8]) -> Result<bool, Fail> {
    Ok(call.hold.read::<SortedSet>(key)?.is_some())
}

pub(super) fn bzpopmin(call: &mut Call) -> Outcome {
    blocking_pop(call, Side::Lowest)
}

pub(super) fn bzpopmax(call: &mut Call) -> Outcome {
    blocking_pop(call, Side::Highest)
}

fn blocking_pop(call: &mut Call, side: Side) -> Outcome {
    let last = call.len() - 1;
    let seconds = timeout(call.word(last))?;
    for place in 1..last {
        let key = call.word(place);
        if has_set(call, key)? {
            let taken = take(call, key, side, 1)?.unwrap_or_default();
            call.reply.array(3);
            call.reply.bulk(key);
            for (score, member) in &taken {
                call.reply.bulk(member);
                call.reply.double(*score);
            }
            return Ok(());
        }
    }
    call.wait(seconds, true);
    Ok(())
}

pub(super) fn zmpop(call: &mut Call) -> Outcome {
    if !pop_of_several(call, 1)? {
        call.reply.null_array();
    }
    Ok(())
}

pub(super) fn bzmpop(call: &mut Call) -> Outcome {
    let seconds = timeout(call.word(1))?;
    if !pop_of_several(call, 2)? {
        call.wait(seconds, true);
    }
    Ok(())
}

fn pop_of_several(call: &mut Call, place: usize) -> Result<bool, Fail> {
    let keys = counted_keys(call, place)?;
    let side = match (is(call.word(keys.end), "min"), is(call.word(keys.end), "max")) {
        (true, _) => Side::Lowest,
        (_, true) => Side::Highest,
        _ => return Err(SYNTAX),
    };
    let count = pop_count(call, keys.end + 1)?;
    for key in keys.map(|place| call.word(place)) {
        if has_set(call, key)? {
            let taken = take(call, key, side, count)?.unwrap_or_default();
            call.reply.array(2);
            call.reply.bulk(key);
            call.reply.array(taken.len());
            for (score, member) in &taken {
                call.reply.array(2);
                call.reply.bulk(member);
                call.reply.double(*score);
            }
            return Ok(true);
        }
    }
    Ok(false)
}

/// A weight of a union.
pub(super) fn weight(word: &[u8]) -> Result<Score, Fail> {
    parse_double(word).ok_or(Fail::fixed("ERR weight value is not a float"))
}
