//! A client's transaction from begin to finish, with conflicts that it resolves or gives in to.

use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::RemoteError;

use super::refusal::{Conflict, check_refusal};
use super::{Client, Doing, Outcome, Phase, Surroundings};
use crate::plan::{InjectedBug, Objects};
use crate::record::{Attempt, record};
use crate::workload::{Seen, Task};

impl Client {
    pub(super) fn send_transaction(
        &mut self,
        doing: &mut Doing,
        attempt: Attempt,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let name = Value::from(attempt.0);
        let description = attempt.0.to_string().into_bytes();
        let begin = [
            name.clone(),
            Value::Bytes(b"".into()),
            Value::Bytes(description.into()),
            Value::dict::<&str>([]),
            Value::None,
            " ".into(),
        ];
        doing.begun = Some(with.now);
        self.tell("tpc_begin", &Value::tuple(begin), with)?;
        let tried = with.history.attempts.get(attempt.place()).ok_or("no such attempt")?;
        let (writes, current) = (tried.writes.clone(), tried.current.clone());
        for (oid, (serial, data)) in &writes {
            let mut serial = serial;
            let current = with.history.before(*oid, Tid::MAX).map(|(tid, ..)| tid);
            if let (InjectedBug::NoConflicts, Some(current)) = (with.plan.bug, &current) {
                serial = current;
            }
            let store =
                [(*oid).into(), (*serial).into(), Value::Bytes((&data[..]).into()), name.clone()];
            self.tell("storea", &Value::tuple(store), with)?;
        }
        for (oid, serial) in &current {
            let check = [(*oid).into(), (*serial).into(), name.clone()];
            self.tell("checkCurrentSerialInTransaction", &Value::tuple(check), with)?;
        }
        self.vote(doing, attempt, with)
    }

    pub(super) fn vote(
        &mut self,
        doing: &mut Doing,
        attempt: Attempt,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let id = self.next_id();
        doing.phase = Phase::Voting { id, attempt };
        self.request(id, "vote", &Value::tuple([attempt.0.into()]), with)
    }

    pub(super) fn voted(
        &mut self,
        mut doing: Doing,
        attempt: Attempt,
        result: Result<Value<'_>, RemoteError<'_>>,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let found = match result {
            Ok(found) => found,
            Err(error) => {
                with.counts.refused += 1;
                check_refusal(&error, attempt, with)?;
                // The server has ended the transaction; stock clients still send an abort.
                return self.abort(doing, attempt, with);
            }
        };
        let found = found.as_sequence().ok_or("a vote is answered with no list")?;
        let read = |value| Conflict::read(value).ok_or("a conflict of nothing");
        let conflicts = found.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        conflicts.iter().try_for_each(|conflict| conflict.check(attempt, false, with))?;
        let Some(&Conflict { oid, committed, .. }) = conflicts.first() else {
            if with.chance.permille(50) {
                return self.abort(doing, attempt, with);
            }
            let id = self.next_id();
            let tried = with.history.attempts.get_mut(attempt.place()).ok_or("no such attempt")?;
            tried.asked = true;
            doing.phase = Phase::Finishing { id, attempt };
            self.doing = Some(doing);
            return self.request(id, "tpc_finish", &Value::tuple([attempt.0.into()]), with);
        };
        with.counts.refused += 1;
        if conflicts.len() > 1 || !Objects::is_counter(oid) || with.chance.permille(200) {
            return self.abort(doing, attempt, with);
        }
        doing.views.clear();
        doing.views.insert(committed.next(), Seen::new());
        doing.phase = Phase::Resolving { attempt, oid, committed };
        self.load(&mut doing, &[oid], committed.next(), with)?;
        self.doing = Some(doing);
        Ok(())
    }

    pub(super) fn resolve(
        &mut self,
        doing: &mut Doing,
        attempt: Attempt,
        oid: Oid,
        committed: Tid,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let seen = doing.views.pop_last().and_then(|(_, mut seen)| seen.remove(&oid));
        let Some((_, now)) = seen else {
            let id = self.next_id();
            doing.phase = Phase::Aborting { id };
            return self.request(id, "tpc_abort", &Value::tuple([attempt.0.into()]), with);
        };
        let count = now.first().copied().unwrap_or_default() + 1;
        let data = record(oid, attempt, &[count], 0);
        let tried = with.history.attempts.get_mut(attempt.place()).ok_or("no such attempt")?;
        tried.writes.insert(oid, (committed, data.clone()));
        with.counts.resolved += 1;
        let store =
            [oid.into(), committed.into(), Value::Bytes((&data[..]).into()), attempt.0.into()];
        self.tell("storea", &Value::tuple(store), with)?;
        self.vote(doing, attempt, with)
    }

    pub(super) fn abort(
        &mut self,
        mut doing: Doing,
        attempt: Attempt,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let id = self.next_id();
        doing.phase = Phase::Aborting { id };
        self.doing = Some(doing);
        self.request(id, "tpc_abort", &Value::tuple([attempt.0.into()]), with)
    }

    pub(super) fn finished(
        &mut self,
        task: Task,
        attempt: Attempt,
        result: Result<Value<'_>, RemoteError<'_>>,
        with: &mut Surroundings<'_>,
    ) -> Outcome {
        let tid = match result {
            Ok(tid) => {
                let told = tid.as_tid();
                told.ok_or_else(|| format!("a finish is answered with {tid:?}, which is no tid"))?
            }
            Err(_) if with.plan.faults > 0 => {
                with.counts.unknown += 1;
                return Ok(());
            }
            Err(error) => return Err(format!("a finish fails: {error:?}")),
        };
        let next = with.history.next_after(self.told);
        if next.is_none_or(|next| next.tid != tid || next.attempt != attempt) {
            let told = self.told;
            return Err(format!("{} is finished as {tid} after {told}, not {next:?}", attempt.0));
        }
        let tried = with.history.attempts.get_mut(attempt.place()).ok_or("no such attempt")?;
        tried.acknowledged = Some(tid);
        for (oid, (_, data)) in &tried.writes {
            self.cache.insert(*oid, (tid, data.clone()));
        }
        self.hear(tid, with);
        with.counts.add_commit(task);
        Ok(())
    }
}
