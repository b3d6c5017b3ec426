//! Ranges of scores and of members: where they begin and end.

use std::ops::Range;

use zodium_keyspace::{Score, SortedSet};
use zodium_resp::parse_limit;

use crate::fail::Fail;

/// A range of a sorted set.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bounds<'a> {
    Scores(ScoreBound, ScoreBound),
    Members(MemberBound<'a>, MemberBound<'a>),
}

/// A bound of scores: `1.5`, `(1.5`, `-inf`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScoreBound {
    score: Score,
    is_exclusive: bool,
}

/// A bound of members: `[a`, `(a`, `-`, `+`.
#[derive(Clone, Copy, Debug)]
pub(super) enum MemberBound<'a> {
    Lowest,
    Highest,
    Inclusive(&'a [u8]),
    Exclusive(&'a [u8]),
}

impl<'a> Bounds<'a> {
    pub(super) fn scores(low: &[u8], high: &[u8]) -> Result<Bounds<'a>, Fail> {
        Ok(Bounds::Scores(score_bound(low)?, score_bound(high)?))
    }

    pub(super) fn members(low: &'a [u8], high: &'a [u8]) -> Result<Bounds<'a>, Fail> {
        Ok(Bounds::Members(member_bound(low)?, member_bound(high)?))
    }

    /// The ranks of the members within.
    pub(super) fn ranks(&self, set: &SortedSet) -> Range<usize> {
        let (start, end) = match self {
            Bounds::Scores(low, high) => (
                set.count_before(|score, _| low.is_above(score)),
                set.count_before(|score, _| high.reaches(score)),
            ),
            Bounds::Members(low, high) => (
                set.count_before(|_, member| low.is_above(member)),
                set.count_before(|_, member| high.reaches(member)),
            ),
        };
        start..end.max(start)
    }
}

fn score_bound(word: &[u8]) -> Result<ScoreBound, Fail> {
    let (is_exclusive, number) = match word.strip_prefix(b"(") {
        Some(number) => (true, number),
        None => (false, word),
    };
    let score = parse_limit(number).ok_or(Fail::fixed("ERR min or max is not a float"))?;
    Ok(ScoreBound { score, is_exclusive })
}

fn member_bound(word: &[u8]) -> Result<MemberBound<'_>, Fail> {
    match word {
        b"-" => Ok(MemberBound::Lowest),
        b"+" => Ok(MemberBound::Highest),
        [b'[', member @ ..] => Ok(MemberBound::Inclusive(member)),
        [b'(', member @ ..] => Ok(MemberBound::Exclusive(member)),
        _ => Err(Fail::fixed("ERR min or max not valid string range item")),
    }
}

impl ScoreBound {
    /// As a lower bound: whether a score is below it.
    fn is_above(self, score: Score) -> bool {
        if self.is_exclusive { score <= self.score } else { score < self.score }
    }

    /// As an upper bound: whether a score is within it.
    fn reaches(self, score: Score) -> bool {
        if self.is_exclusive { score < self.score } else { score <= self.score }
    }
}

impl MemberBound<'_> {
    fn is_above(&self, member: &[u8]) -> bool {
        match self {
            MemberBound::Lowest => false,
            MemberBound::Highest => true,
            MemberBound::Inclusive(bound) => member < *bound,
            MemberBound::Exclusive(bound) => member <= *bound,
        }
    }

    fn reaches(&self, member: &[u8]) -> bool {
        match self {
            MemberBound::Lowest => false,
            MemberBound::Highest => true,
            MemberBound::Inclusive(bound) => member <= *bound,
            MemberBound::Exclusive(bound) => member < *bound,
        }
    }
}
