//! The causes of refused votes. A conflict must name an object of the transaction, the revision
//! that its client has sent for it, and the revision that has replaced that one.

use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::RemoteError;

use super::{Outcome, Surroundings};
use crate::history::{History, Tried};
use crate::plan::InjectedBug;
use crate::record::Attempt;

/// What a server says of a conflict.
pub(super) struct Conflict {
    pub(super) oid: Oid,
    pub(super) committed: Tid,
    sent: Tid,
}

impl Conflict {
    /// Reads an entry of a vote's answer, or the attributes of an exception.
    pub(super) fn read(value: &Value<'_>) -> Option<Conflict> {
        let oid = value.entry("oid").and_then(Value::as_oid)?;
        let [committed, sent] = value.entry("serials").and_then(Value::as_sequence)? else {
            return None;
        };
        Some(Conflict { oid, committed: committed.as_tid()?, sent: sent.as_tid()? })
    }

    /// Fails unless it is a conflict of an attempt with what was committed. One with a read is of
    /// an object that the attempt only needs to be current.
    pub(super) fn check(
        &self,
        attempt: Attempt,
        is_of_read: bool,
        with: &Surroundings<'_>,
    ) -> Outcome {
        let Conflict { oid, committed, sent } = *self;
        let tried = with.history.attempts.get(attempt.place()).ok_or("no such attempt")?;
        let base = base(tried, oid, is_of_read);
        let base = base.ok_or_else(|| format!("a conflict of {oid}, which is not of the vote"))?;
        let is_known = revision(with.history, oid, committed);
        let is_as_sent = sent == base || with.plan.bug == InjectedBug::NoConflicts;
        if is_known && is_as_sent && committed > base {
            return Ok(());
        }
        Err(format!("a conflict of {oid}: {committed} for {sent}, but it is based on {base}"))
    }
}

/// Fails unless a vote may be refused with this exception.
pub(super) fn check_refusal(
    error: &RemoteError<'_>,
    attempt: Attempt,
    with: &Surroundings<'_>,
) -> Outcome {
    if !error.name.contains("Conflict") {
        let may_fail = with.plan.faults > 0;
        return if may_fail { Ok(()) } else { Err(format!("a vote fails: {error:?}")) };
    }
    let conflict = Conflict::read(&error.payload);
    let conflict = conflict.ok_or_else(|| format!("a conflict of nothing: {error:?}"))?;
    conflict.check(attempt, error.name.contains("ReadConflict"), with)
}

fn base(tried: &Tried, oid: Oid, is_of_read: bool) -> Option<Tid> {
    match is_of_read {
        true => tried.current.get(&oid).copied(),
        false => tried.writes.get(&oid).map(|(base, _)| *base),
    }
}

fn revision(history: &History, oid: Oid, tid: Tid) -> bool {
    history.before(oid, tid.next()).is_some_and(|(found, ..)| found == tid)
}
