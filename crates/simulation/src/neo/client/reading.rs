//! Reads, and questions for the outcome of a commit: each answer is compared with the history.

use zodium_neo::messages::AskFinalTID;
use zodium_neo::{Checksum, ErrorCode, Message};
use zodium_types::{Oid, Tid};

use super::orders::Order;
use super::{Client, Doing, checksum};
use crate::neo::context::Context;
use crate::neo::history::Outcome;

/// Whether `next` follows the revision of an object that a client has read. The storage may not
/// have known one that is later than what the client knows; a truncation may have removed it since.
fn is_next(context: &Context, oid: Oid, (serial, known): (Tid, Tid), next: Option<Tid>) -> bool {
    let truth = context.history.next(oid, serial);
    let is_later = |tid: Option<Tid>| tid.is_none_or(|tid| tid > known);
    let may_be_cut = context.plan.truncations > 0 && is_later(next);
    // A storage that decides alone has committed it with its lock.
    let is_locking = next.is_some_and(|next| context.history.is_locking(oid, next));
    next == truth
        || is_later(truth) && is_locking && is_later(next)
        || is_later(truth) && (next.is_none() || may_be_cut)
        // A pack removes what is between.
        || !context.history.is_kept(oid, serial)
}

impl Client {
    pub(super) fn begin_reading(&mut self, context: &mut Context) {
        let Some(last) = self.last_tid else { return };
        let oid = Oid(context.chance.number(1..=context.plan.objects));
        // Some read an older state than they know.
        let past = context.history.committed.range(..=last);
        let before = match context.chance.permille(300) {
            true => {
                let past: Vec<Tid> = past.map(|(tid, _)| *tid).collect();
                past.get(context.chance.place(past.len())).map_or(last, |tid| *tid).next()
            }
            false => last.next(),
        };
        self.doing = Doing::Reading { known: last, cuts: context.history.cuts };
        self.ask_another(context, Order::Read { oid, before });
    }

    /// Asks a storage; if there is none, the task is given up.
    pub(super) fn ask_another(&mut self, context: &mut Context, order: Order) {
        let partition = match order {
            Order::Read { oid, .. } => self.partition_of(oid),
            Order::Outcome(ttid) => {
                self.table.as_ref().and_then(|table| table.partition_of_tid(ttid))
            }
            _ => None,
        };
        let nodes = partition.map(|partition| self.readable(partition)).unwrap_or_default();
        match nodes.get(context.chance.place(nodes.len())) {
            Some(node) => self.order(context, *node, order),
            // The master will stop the cluster, and close the connection.
            None if matches!(order, Order::Outcome(_)) => self.retry_outcome(context),
            None => self.doing = Doing::Nothing,
        }
    }

    pub(super) fn read_answered(
        &mut self,
        context: &mut Context,
        (oid, before): (Oid, Tid),
        message: Message<'_>,
    ) {
        let Doing::Reading { known, cuts } = self.doing else { return };
        let expected = context.history.record(oid, before);
        let expected = expected.map(|(serial, data)| (serial, data.map(text)));
        let wrong = match message {
            Message::AnswerObject(answer) => {
                let is_deletion = answer.checksum == Checksum::ZERO && answer.data.is_empty();
                if !is_deletion && checksum(answer.data) != answer.checksum {
                    context.violate(format!("{oid} comes with another sum"));
                }
                let data = (!is_deletion).then(|| text(answer.data));
                let (serial, next) = (answer.serial, answer.next_serial);
                let found = Some((serial, data));
                let is_next = is_next(context, oid, (serial, known), next);
                let is_right = found == expected && is_next;
                (!is_right).then(|| format!("{found:?}, followed by {next:?}"))
            }
            Message::Error(error) => match error.code {
                ErrorCode::OidNotFound | ErrorCode::OidDoesNotExist => {
                    // A pack may have removed a deletion; or the revision, when a later one is
                    // before the pack time. The client reads an older state then.
                    let is_there = matches!(expected, Some((serial, Some(_)))
                        if context.history.is_kept(oid, serial));
                    is_there.then(|| error.code.to_string())
                }
                _ => return self.ask_another(context, Order::Read { oid, before }),
            },
            other => Some(other.name().to_owned()),
        };
        // Nothing is certain if the history was cut since the client asked.
        let is_comparable =
            cuts == context.history.cuts && context.history.last_tid().next() >= before;
        if let Some(wrong) = wrong.filter(|_| is_comparable) {
            context.violate(format!("{oid} before {before} is read as {wrong}, not {expected:?}"));
        }
        context.counts.reads += 1;
        self.doing = Doing::Nothing;
    }

    /// Asks the master for the outcome of a commit.
    pub(super) fn resolve(&mut self, context: &mut Context) {
        if let (Doing::Resolving(ttid), Some(master)) = (&self.doing, self.master) {
            context.counts.outcomes += 1;
            context.net.send(self.end(), master, AskFinalTID { ttid: *ttid });
        }
    }

    fn retry_outcome(&mut self, context: &mut Context) {
        // The next table or the end of the connection brings the client here again.
        if let Some(master) = self.master {
            context.net.close(self.end(), master);
        }
    }

    /// The master says what became of a commit, or that the storages know.
    pub(super) fn outcome_told(&mut self, context: &mut Context, tid: Option<Tid>) {
        let Doing::Resolving(ttid) = self.doing else { return };
        match tid {
            Some(Tid::MAX) => self.ask_another(context, Order::Outcome(ttid)),
            tid => self.resolved(context, ttid, tid),
        }
    }

    pub(super) fn resolved(&mut self, context: &mut Context, ttid: Tid, tid: Option<Tid>) {
        if !matches!(self.doing, Doing::Resolving(open) if open == ttid) {
            return;
        }
        let outcome = context.history.outcome(ttid);
        let truth = match outcome {
            Some(Outcome::Committed(tid)) => Some(tid),
            Some(Outcome::Open | Outcome::Aborted | Outcome::Truncated) | None => None,
        };
        // An earlier master may tell of a commit that was cut off since.
        if tid != truth && outcome != Some(Outcome::Truncated) {
            context.violate(format!("the outcome of {ttid} is told as {tid:?}, not {truth:?}"));
        }
        self.doing = Doing::Nothing;
    }
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}
