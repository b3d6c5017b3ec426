//! Sorted sets: what is within a range of ranks, scores or members.

use std::ops::Range;

use zodium_keyspace::{Entry, Kind, Score, SortedSet};

use super::positions;
use super::score_ranges::Bounds;
use crate::call::{Call, Options, integer, is};
use crate::events::Class;
use crate::fail::{Fail, Outcome, SYNTAX};

/// A range that a command asks for.
struct Query<'a> {
    by: By<'a>,
    is_reverse: bool,
    skipped: i64,
    /// Negative for all.
    count: i64,
    with_scores: bool,
}

enum By<'a> {
    Ranks(i64, i64),
    Bounds(Bounds<'a>),
}

/// What the options of `ZRANGE` said.
#[derive(Default)]
struct RangeOptions {
    by_score: bool,
    by_member: bool,
    is_reverse: bool,
    limit: Option<(i64, i64)>,
    with_scores: bool,
}

impl RangeOptions {
    fn is_by_rank(&self) -> bool {
        !self.by_score && !self.by_member
    }
}

/// The options that a command takes.
enum Taken {
    /// Those of `ZRANGE`.
    All,
    /// Those of `ZRANGESTORE`: scores are stored in any case.
    AllButScores,
    /// `LIMIT` and `WITHSCORES`, beside those that the name of the command implies.
    Beside(RangeOptions),
}

/// Reads the options from a place on.
fn range_options(call: &Call, place: usize, taken: Taken) -> Result<RangeOptions, Fail> {
    let takes_scores = !matches!(taken, Taken::AllButScores);
    let (has_all, mut found) = match taken {
        Taken::All | Taken::AllButScores => (true, RangeOptions::default()),
        Taken::Beside(implied) => (false, implied),
    };
    let mut options = Options::from(call.arguments, place);
    while let Some(word) = options.next() {
        if takes_scores && is(word, "withscores") {
            found.with_scores = true;
        } else if is(word, "limit") {
            found.limit = Some((integer(options.value()?)?, integer(options.value()?)?));
        } else if has_all && is(word, "byscore") && found.is_by_rank() {
            found.by_score = true;
        } else if has_all && is(word, "bylex") && found.is_by_rank() {
            found.by_member = true;
        } else if has_all && is(word, "rev") && !found.is_reverse {
            found.is_reverse = true;
        } else {
            return Err(SYNTAX);
        }
    }
    Ok(found)
}

/// The range of a command whose bounds are at a place.
fn query<'a>(call: &Call<'a, '_>, place: usize, taken: Taken) -> Result<Query<'a>, Fail> {
    let options = range_options(call, place + 2, taken)?;
    // A limit to all counts for none, as Valkey reads it.
    if options.limit.is_some_and(|(_, count)| count != -1) && options.is_by_rank() {
        return Err(Fail::fixed(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    if options.with_scores && options.by_member {
        return Err(Fail::fixed(
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ));
    }
    let (mut low, mut high) = (call.word(place), call.word(place + 1));
    if options.is_reverse && !options.is_by_rank() {
        (low, high) = (high, low);
    }
    let by = if options.by_score {
        By::Bounds(Bounds::scores(low, high)?)
    } else if options.by_member {
        By::Bounds(Bounds::members(low, high)?)
    } else {
        By::Ranks(integer(low)?, integer(high)?)
    };
    Ok(Query::of(by, options))
}

impl<'a> Query<'a> {
    fn of(by: By<'a>, options: RangeOptions) -> Query<'a> {
        let (skipped, count) = options.limit.unwrap_or((0, -1));
        let (is_reverse, with_scores) = (options.is_reverse, options.with_scores);
        Query { by, is_reverse, skipped, count, with_scores }
    }

    /// The members within, in order.
    fn members<'s>(&self, set: &'s SortedSet) -> Vec<(&'s [u8], Score)> {
        let ranks = match &self.by {
            By::Ranks(start, end) => self.by_ranks(*start, *end, set.len()),
            By::Bounds(bounds) => self.limited(bounds.ranks(set)),
        };
        match (ranks.is_empty(), self.is_reverse) {
            (true, _) => Vec::new(),
            (false, false) => set.upwards(ranks.start).take(ranks.len()).collect(),
            (false, true) => set.downwards(ranks.end - 1).take(ranks.len()).collect(),
        }
    }

    fn by_ranks(&self, start: i64, end: i64, length: usize) -> Range<usize> {
        let places = positions::range(start, end, length).unwrap_or(0..0);
        match self.is_reverse {
            true => length - places.end..length - places.start,
            false => places,
        }
    }

    /// What `LIMIT` leaves of a range.
    fn limited(&self, ranks: Range<usize>) -> Range<usize> {
        let Ok(skipped) = usize::try_from(self.skipped) else { return 0..0 };
        let skipped = skipped.min(ranks.len());
        let count = usize::try_from(self.count).unwrap_or(usize::MAX).min(ranks.len() - skipped);
        match self.is_reverse {
            true => ranks.end - skipped - count..ranks.end - skipped,
            false => ranks.start + skipped..ranks.start + skipped + count,
        }
    }
}

fn answer(call: &mut Call, query: &Query) -> Outcome {
    let set = call.hold.read::<SortedSet>(call.word(1))?;
    let members = set.map(|set| query.members(set)).unwrap_or_default();
    let with_scores = query.with_scores;
    super::hashes::answer_pairs(with_scores, &mut call.reply, &members, |reply, pair| {
        reply.bulk(pair.0);
        if with_scores {
            reply.double(pair.1);
        }
    });
    Ok(())
}

pub(super) fn zrange(call: &mut Call) -> Outcome {
    answer_range(call, Taken::All)
}

pub(super) fn zrangestore(call: &mut Call) -> Outcome {
    let target = call.word(1);
    let query = query(call, 3, Taken::AllButScores)?;
    let mut found = SortedSet::default();
    if let Some(set) = call.hold.read::<SortedSet>(call.word(2))? {
        for (member, score) in query.members(set) {
            found.set(member, score);
        }
    }
    store(call, target, found, "zrangestore");
    Ok(())
}

/// Stores a result, or removes the key if it is empty; answers its length.
pub(super) fn store(call: &mut Call, target: &[u8], set: SortedSet, event: &str) {
    let length = set.len();
    if length > 0 {
        call.hold.put(target, Entry::new(set.into_value()));
        call.changed(target, Class::SortedSet, event);
    } else {
        call.remove(target);
    }
    call.reply.count(length);
}

pub(super) fn zrevrange(call: &mut Call) -> Outcome {
    answer_range(call, Taken::Beside(RangeOptions { is_reverse: true, ..RangeOptions::default() }))
}

pub(super) fn zrangebyscore(call: &mut Call) -> Outcome {
    answer_range(call, Taken::Beside(RangeOptions { by_score: true, ..RangeOptions::default() }))
}

pub(super) fn zrevrangebyscore(call: &mut Call) -> Outcome {
    let given = RangeOptions { by_score: true, is_reverse: true, ..RangeOptions::default() };
    answer_range(call, Taken::Beside(given))
}

pub(super) fn zrangebylex(call: &mut Call) -> Outcome {
    answer_range(call, Taken::Beside(RangeOptions { by_member: true, ..RangeOptions::default() }))
}

pub(super) fn zrevrangebylex(call: &mut Call) -> Outcome {
    let given = RangeOptions { by_member: true, is_reverse: true, ..RangeOptions::default() };
    answer_range(call, Taken::Beside(given))
}

fn answer_range(call: &mut Call, taken: Taken) -> Outcome {
    let query = query(call, 2, taken)?;
    answer(call, &query)
}

pub(super) fn zcount(call: &mut Call) -> Outcome {
    count(call, &Bounds::scores(call.word(2), call.word(3))?)
}

pub(super) fn zlexcount(call: &mut Call) -> Outcome {
    count(call, &Bounds::members(call.word(2), call.word(3))?)
}

fn count(call: &mut Call, bounds: &Bounds) -> Outcome {
    let set = call.hold.read::<SortedSet>(call.word(1))?;
    call.reply.count(set.map_or(0, |set| bounds.ranks(set).len()));
    Ok(())
}

pub(super) fn zremrangebyscore(call: &mut Call) -> Outcome {
    let bounds = Bounds::scores(call.word(2), call.word(3))?;
    remove(call, "zremrangebyscore", |set| bounds.ranks(set))
}

pub(super) fn zremrangebylex(call: &mut Call) -> Outcome {
    let bounds = Bounds::members(call.word(2), call.word(3))?;
    remove(call, "zremrangebylex", |set| bounds.ranks(set))
}

pub(super) fn zremrangebyrank(call: &mut Call) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    remove(call, "zremrangebyrank", |set| positions::range(start, end, set.len()).unwrap_or(0..0))
}

fn remove(call: &mut Call, event: &str, ranks: impl FnOnce(&SortedSet) -> Range<usize>) -> Outcome {
    let key = call.word(1);
    let Some(set) = call.hold.write::<SortedSet>(key)? else {
        call.reply.count(0);
        return Ok(());
    };
    let removed = set.remove_ranks(ranks(set)).len();
    if removed > 0 {
        call.changed(key, Class::SortedSet, event);
        call.remove_if_empty::<SortedSet>(key);
    }
    call.reply.count(removed);
    Ok(())
}
