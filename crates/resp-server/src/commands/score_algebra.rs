//! Unions, intersections and differences of sorted sets, of which some may be sets.

use std::collections::HashMap;

use zodium_keyspace::{EntryRef, Score, Set, SortedSet, ValueRef};

use super::algebra::limit;
use super::hashes::answer_pairs;
use super::ranges::store;
use super::sorted_sets::weight;
use crate::call::{Call, Options, is};
use crate::fail::{Fail, NO_INTEGER, Outcome, SYNTAX, WRONG_TYPE};

/// How the scores of a member are put together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Least,
    Most,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// A set of either kind. Members of a set have the score 1.
#[derive(Clone, Copy)]
enum Operand<'a> {
    Nothing,
    Set(&'a Set),
    Sorted(&'a SortedSet),
}

impl<'a> Operand<'a> {
    fn of(call: &'a Call, key: &[u8]) -> Result<Operand<'a>, Fail> {
        match call.hold.find(key).map(EntryRef::value) {
            None => Ok(Operand::Nothing),
            Some(ValueRef::Set(set)) => Ok(Operand::Set(set)),
            Some(ValueRef::SortedSet(set)) => Ok(Operand::Sorted(set)),
            Some(_) => Err(WRONG_TYPE),
        }
    }

    fn len(self) -> usize {
        match self {
            Operand::Nothing => 0,
            Operand::Set(set) => set.len(),
            Operand::Sorted(set) => set.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<Score> {
        match self {
            Operand::Nothing => None,
            Operand::Set(set) => set.contains(member).then_some(1.0),
            Operand::Sorted(set) => set.score(member),
        }
    }

    fn iter(self) -> Box<dyn Iterator<Item = (&'a [u8], Score)> + 'a> {
        match self {
            Operand::Nothing => Box::new(std::iter::empty()),
            Operand::Set(set) => Box::new(set.iter().map(|member| (member, 1.0))),
            Operand::Sorted(set) => Box::new(set.upwards(0)),
        }
    }
}

impl Aggregate {
    fn of(self, one: Score, other: Score) -> Score {
        match self {
            // Infinities of both signs make none.
            Aggregate::Sum => Some(one + other).filter(|sum| !sum.is_nan()).unwrap_or(0.0),
            // `other` may be no number: then `one` stays.
            Aggregate::Least => one.min(other),
            Aggregate::Most => one.max(other),
        }
    }
}

/// The places of the keys that the number at a place counts.
fn keys(call: &Call, place: usize) -> Result<std::ops::Range<usize>, Fail> {
    let count = call.integer(place).map_err(|_| NO_INTEGER)?;
    if count < 1 {
        let name = String::from_utf8_lossy(call.word(0)).to_ascii_lowercase();
        return Err(Fail::text(format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > call.len() - place - 1 {
        return Err(SYNTAX);
    }
    Ok(place + 1..place + 1 + count)
}

/// Executes an operation; whether the answer is to have scores.
fn operate(call: &Call, operation: Operation, place: usize) -> Result<(SortedSet, bool), Fail> {
    let keys = keys(call, place)?;
    let operands: Result<Vec<_>, Fail> =
        keys.clone().map(|place| Operand::of(call, call.word(place))).collect();
    let operands = operands?;
    let mut weights = vec![1.0; keys.len()];
    let (mut aggregate, mut with_scores) = (Aggregate::Sum, false);
    let stores = place == 2;
    let mut options = Options::from(call.arguments, keys.end);
    while let Some(word) = options.next() {
        if is(word, "weights") && operation != Operation::Diff && options.left() >= keys.len() {
            for slot in &mut weights {
                *slot = weight(options.value()?)?;
            }
        } else if is(word, "aggregate") && operation != Operation::Diff {
            let name = options.value()?;
            let kinds =
                [("sum", Aggregate::Sum), ("min", Aggregate::Least), ("max", Aggregate::Most)];
            let kind = kinds.into_iter().find(|(kind, _)| is(name, kind));
            aggregate = kind.ok_or(SYNTAX)?.1;
        } else if is(word, "withscores") && !stores {
            with_scores = true;
        } else {
            return Err(SYNTAX);
        }
    }
    let mut weighted: Vec<_> = operands.iter().copied().zip(weights).collect();
    // Sums depend on the order. The stock server begins with the smallest set.
    weighted.sort_by_key(|(operand, _)| operand.len());
    let set = match operation {
        Operation::Union => union(&weighted, aggregate),
        Operation::Inter => inter(&weighted, aggregate),
        Operation::Diff => diff(&operands),
    };
    Ok((set, with_scores))
}

/// A score by its weight. Nothing of infinity is nothing.
fn weighted(score: Score, weight: Score) -> Score {
    Some(score * weight).filter(|score| !score.is_nan()).unwrap_or(0.0)
}

fn union(operands: &[(Operand, Score)], aggregate: Aggregate) -> SortedSet {
    // Scores are added up first: each change of a score in the set would move its member.
    let mut scores: HashMap<&[u8], Score> = HashMap::new();
    for (operand, weight) in operands {
        for (member, score) in operand.iter() {
            let score = weighted(score, *weight);
            let sum = scores.entry(member);
            sum.and_modify(|there| *there = aggregate.of(*there, score)).or_insert(score);
        }
    }
    let mut scores: Vec<_> = scores.into_iter().collect();
    scores.sort_unstable_by(|one, other| one.1.total_cmp(&other.1).then(one.0.cmp(other.0)));
    let mut found = SortedSet::default();
    for (member, score) in scores {
        found.set(member, score);
    }
    found
}

fn inter(operands: &[(Operand, Score)], aggregate: Aggregate) -> SortedSet {
    let mut found = SortedSet::default();
    let Some(((smallest, weight), others)) = operands.split_first() else { return found };
    for (member, score) in smallest.iter() {
        let first = weighted(score, *weight);
        // Nothing of infinity is no number in the others, as for the stock server.
        let all = others.iter().try_fold(first, |score, (operand, weight)| {
            Some(aggregate.of(score, operand.score(member)? * weight))
        });
        if let Some(score) = all {
            found.set(member, score);
        }
    }
    found
}

fn diff(operands: &[Operand]) -> SortedSet {
    let mut found = SortedSet::default();
    let Some((first, others)) = operands.split_first() else { return found };
    for (member, score) in first.iter() {
        if !others.iter().any(|other| other.score(member).is_some()) {
            found.set(member, score);
        }
    }
    found
}

pub(super) fn zunion(call: &mut Call) -> Outcome {
    answer(call, Operation::Union)
}

pub(super) fn zinter(call: &mut Call) -> Outcome {
    answer(call, Operation::Inter)
}

pub(super) fn zdiff(call: &mut Call) -> Outcome {
    answer(call, Operation::Diff)
}

fn answer(call: &mut Call, operation: Operation) -> Outcome {
    let (set, with_scores) = operate(call, operation, 1)?;
    let members: Vec<_> = set.upwards(0).collect();
    answer_pairs(with_scores, &mut call.reply, &members, |reply, pair| {
        reply.bulk(pair.0);
        if with_scores {
            reply.double(pair.1);
        }
    });
    Ok(())
}

pub(super) fn zunionstore(call: &mut Call) -> Outcome {
    let (set, _) = operate(call, Operation::Union, 2)?;
    store(call, call.word(1), set, "zunionstore");
    Ok(())
}

pub(super) fn zinterstore(call: &mut Call) -> Outcome {
    let (set, _) = operate(call, Operation::Inter, 2)?;
    store(call, call.word(1), set, "zinterstore");
    Ok(())
}

pub(super) fn zdiffstore(call: &mut Call) -> Outcome {
    let (set, _) = operate(call, Operation::Diff, 2)?;
    store(call, call.word(1), set, "zdiffstore");
    Ok(())
}

pub(super) fn zintercard(call: &mut Call) -> Outcome {
    let keys = keys(call, 1)?;
    let operands: Result<Vec<_>, Fail> =
        keys.clone().map(|place| Operand::of(call, call.word(place))).collect();
    let operands = operands?;
    let most = limit(call, keys.end)?;
    let smallest = operands.iter().min_by_key(|operand| operand.len());
    let members = smallest.into_iter().flat_map(|operand| operand.iter());
    let is_common = |(member, _): &(&[u8], Score)| {
        operands.iter().all(|operand| operand.score(member).is_some())
    };
    let common = members.filter(is_common).take(most).count();
    call.reply.count(common);
    Ok(())
}
