//! Commits, as NEO's client makes them: stores to all cells, votes, the end at the master.

use std::collections::{BTreeMap, BTreeSet};

use zodium_neo::messages::{
    AbortTransaction, AnswerRelockObject, AskBeginTransaction, AskFinishTransaction, FailedVote,
    PackRequest,
};
use zodium_neo::{ErrorCode, Message, NodeId, Partition};
use zodium_types::{Oid, Tid};

use super::orders::Order;
use super::{Client, Doing};
use crate::neo::context::Context;
use crate::neo::history::{Attempt, Change, Outcome, Pack};

/// A client gives up after so many conflicts.
const VERSIONS_MAX: u32 = 5;

/// A transaction of the client.
#[derive(Debug)]
pub(super) struct Commit {
    /// `None` until the master has begun it.
    ttid: Option<Tid>,
    stage: Stage,
    pub(super) objects: BTreeMap<Oid, Wish>,
    pub(super) pack: Option<Pack>,
    /// Storages that have heard of it.
    involved: BTreeSet<NodeId>,
    failed: BTreeSet<NodeId>,
}

/// A change of an object.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) serial: Tid,
    pub(super) change: Change,
    /// Counts the conflicts.
    version: u32,
    /// Storages that have locked it.
    locked: BTreeSet<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Beginning,
    Storing,
    Voting,
    /// The master is asked whether failed storages matter.
    Asking,
    Finishing,
}

impl Commit {
    pub(super) fn ttid(&self) -> Option<Tid> {
        self.ttid
    }

    pub(super) fn is_finishing(&self) -> bool {
        self.stage == Stage::Finishing
    }

    pub(super) fn node_failed(&mut self, node: NodeId) {
        if self.involved.contains(&node) {
            self.failed.insert(node);
        }
    }

    /// All objects that are stored or deleted.
    pub(super) fn stored(&self) -> Vec<Oid> {
        self.with(|change| *change != Change::Check)
    }

    fn with(&self, is_such: impl Fn(&Change) -> bool) -> Vec<Oid> {
        let found = self.objects.iter().filter(|(_, wish)| is_such(&wish.change));
        found.map(|(oid, _)| *oid).collect()
    }

    fn attempt(&self) -> Attempt {
        let change = |(oid, wish): (&Oid, &Wish)| (*oid, (wish.serial, wish.change.clone()));
        Attempt { objects: self.objects.iter().map(change).collect(), pack: self.pack.clone() }
    }

    /// Whether each object is locked by a storage that has not failed.
    fn is_locked(&self) -> bool {
        self.objects.values().all(|wish| wish.locked.difference(&self.failed).next().is_some())
    }
}

impl Client {
    pub(super) fn begin_commit(&mut self, context: &mut Context) {
        let (Some(last), Some(master)) = (self.last_tid, self.master) else { return };
        let mut objects = BTreeMap::new();
        for _ in 0..context.chance.size(context.plan.transaction_objects) {
            let oid = Oid(context.chance.number(1..=context.plan.objects));
            // Some clients have not heard of the last change.
            let before = match context.chance.permille(100) {
                true => context.history.newest(oid, last.next()),
                false => last.next(),
            };
            let serial = context.history.newest(oid, before);
            let change = match context.chance.number(0..=9) {
                0 => Change::Delete,
                1 => Change::Check,
                _ => Change::Store(content(oid, context.tid())),
            };
            objects.insert(oid, Wish { serial, change, version: 0, locked: BTreeSet::new() });
        }
        let pack = context.chance.permille(context.plan.packs) && last > Tid::ZERO;
        let pack = pack.then(|| {
            let is_partial = context.chance.permille(400);
            let oids = is_partial.then(|| objects.keys().copied().collect());
            Pack { oids, until: last }
        });
        let (involved, failed) = (BTreeSet::new(), BTreeSet::new());
        let stage = Stage::Beginning;
        let commit = Commit { ttid: None, stage, objects, pack, involved, failed };
        self.doing = Doing::Committing(Box::new(commit));
        context.net.send(self.end(), master, AskBeginTransaction { tid: None });
    }

    /// Handles what the master answers for a commit.
    pub(super) fn commit_told(&mut self, context: &mut Context, message: Message<'_>) {
        let stage = match &self.doing {
            Doing::Committing(commit) => Some(commit.stage),
            _ => None,
        };
        match (stage, message) {
            (Some(Stage::Beginning), Message::AnswerBeginTransaction(answer)) => {
                self.begun(context, answer.ttid);
            }
            (Some(Stage::Asking), Message::Error(error)) if error.code == ErrorCode::Ack => {
                context.counts.incomplete += 1;
                self.finish(context);
            }
            (Some(Stage::Asking), Message::Error(_)) => self.abort(context),
            (Some(Stage::Finishing), Message::Error(_)) => self.abort(context),
            (Some(Stage::Finishing), Message::AnswerTransactionFinished(answer)) => {
                self.last_tid = self.last_tid.map(|last| last.max(answer.tid));
                let outcome = context.history.outcome(answer.ttid);
                let is_committed = outcome == Some(Outcome::Committed(answer.tid));
                if !is_committed && outcome != Some(Outcome::Truncated) {
                    context.violate(format!("{} is acknowledged as {}", answer.ttid, answer.tid));
                }
                context.counts.commits += 1;
                self.doing = Doing::Nothing;
            }
            (_, Message::AnswerFinalTID(answer)) => self.outcome_told(context, answer.tid),
            (stage, other) => {
                context.violate(format!("{} from the master in {stage:?}", other.name()));
            }
        }
    }

    fn begun(&mut self, context: &mut Context, ttid: Tid) {
        let Doing::Committing(commit) = &mut self.doing else { return };
        commit.ttid = Some(ttid);
        commit.stage = Stage::Storing;
        let oids: Vec<_> = commit.objects.keys().copied().collect();
        for oid in oids {
            self.store(context, oid);
        }
        self.go_on(context);
    }

    /// Stores an object in all cells.
    fn store(&mut self, context: &mut Context, oid: Oid) {
        let nodes = self.partition_of(oid).map(|one| self.writable(one)).unwrap_or_default();
        let Doing::Committing(commit) = &mut self.doing else { return };
        let Some(wish) = commit.objects.get(&oid) else { return };
        let order = Order::Store { oid, version: wish.version };
        let nodes: Vec<_> =
            nodes.into_iter().filter(|node| !commit.failed.contains(node)).collect();
        commit.involved.extend(&nodes);
        for node in nodes {
            self.order(context, node, order);
        }
    }

    /// Handles what a storage answers for a commit.
    pub(super) fn commit_answered(
        &mut self,
        context: &mut Context,
        node: NodeId,
        order: Order,
        message: Message<'_>,
    ) {
        let (oid, version, conflict) = match (order, message) {
            (Order::Store { oid, version }, Message::AnswerStoreObject(answer)) => {
                (oid, version, answer.conflict)
            }
            (Order::Store { oid, version }, Message::AnswerCheckCurrentSerial(answer)) => {
                (oid, version, answer.conflict)
            }
            (Order::Relock { oid, version }, Message::AnswerRelockObject(answer)) => {
                let AnswerRelockObject { conflict } = answer;
                (oid, version, conflict.map(|conflict| conflict.conflict))
            }
            (Order::Vote, Message::AnswerVoteTransaction(_))
            | (Order::StoreTransaction, Message::AnswerStoreTransaction(_)) => {
                return self.go_on(context);
            }
            (order, other) => {
                return context.violate(format!("{} answers {order:?}", other.name()));
            }
        };
        let Doing::Committing(commit) = &mut self.doing else { return };
        let Some(wish) = commit.objects.get_mut(&oid) else { return };
        match conflict {
            None if version == wish.version => drop(wish.locked.insert(node)),
            // Stored without a lock: another cell has it.
            None | Some(Tid::ZERO) => {}
            Some(tid) if tid <= wish.serial => {}
            Some(tid) => return self.conflict(context, oid, tid),
        }
        self.go_on(context);
    }

    /// Resolves a conflict, or gives up.
    fn conflict(&mut self, context: &mut Context, oid: Oid, tid: Tid) {
        let data = content(oid, context.tid());
        let gives_up = context.chance.permille(300);
        let Doing::Committing(commit) = &mut self.doing else { return };
        let Some(wish) = commit.objects.get_mut(&oid) else { return };
        if wish.version == VERSIONS_MAX || wish.change == Change::Check || gives_up {
            return self.abort(context);
        }
        (wish.serial, wish.version) = (tid, wish.version + 1);
        wish.locked.clear();
        if let Change::Store(old) = &mut wish.change {
            *old = data;
        }
        context.counts.resolved += 1;
        self.store(context, oid);
        self.go_on(context);
    }

    /// An older transaction waits for a lock: it is given back, unless all stores are done.
    pub(super) fn deadlock(&mut self, context: &mut Context, node: NodeId, ttid: Tid, oid: Oid) {
        let Doing::Committing(commit) = &mut self.doing else { return };
        if commit.ttid != Some(ttid) || commit.stage != Stage::Storing {
            return;
        }
        let Some(wish) = commit.objects.get_mut(&oid) else { return };
        wish.locked.remove(&node);
        let order = Order::Relock { oid, version: wish.version };
        context.counts.relocks += 1;
        self.order(context, node, order);
    }

    /// Takes the next step when all storages have answered.
    pub(super) fn go_on(&mut self, context: &mut Context) {
        let Doing::Committing(commit) = &self.doing else { return };
        if self.is_waiting() {
            return;
        }
        match commit.stage {
            Stage::Storing if commit.is_locked() => self.vote(context),
            Stage::Storing => self.abort(context),
            Stage::Voting if commit.failed.is_empty() => self.finish(context),
            Stage::Voting => self.ask_master(context),
            Stage::Beginning | Stage::Asking | Stage::Finishing => {}
        }
    }

    fn vote(&mut self, context: &mut Context) {
        let Doing::Committing(commit) = &self.doing else { return };
        let (table, Some(ttid)) = (&self.table, commit.ttid) else { return };
        let partition = table.as_ref().and_then(|table| table.partition_of_tid(ttid));
        let metadata = partition.map(|one| self.writable(one)).unwrap_or_default();
        let Doing::Committing(commit) = &mut self.doing else { return };
        commit.stage = Stage::Voting;
        let is_new = |node: &NodeId| !commit.involved.contains(node);
        let new: Vec<_> = metadata.iter().copied().filter(is_new).collect();
        commit.involved.extend(new);
        let nodes: Vec<_> = commit.involved.difference(&commit.failed).copied().collect();
        for node in nodes {
            let has_metadata = metadata.contains(&node);
            let order = if has_metadata { Order::StoreTransaction } else { Order::Vote };
            self.order(context, node, order);
        }
        self.go_on(context);
    }

    fn ask_master(&mut self, context: &mut Context) {
        let Doing::Committing(commit) = &mut self.doing else { return };
        if !commit.is_locked() {
            return self.abort(context);
        }
        commit.stage = Stage::Asking;
        let (Some(ttid), Some(master)) = (commit.ttid, self.master) else { return };
        let failed = commit.failed.iter().copied().collect();
        context.net.send(self.end(), master, FailedVote { ttid, failed });
    }

    fn finish(&mut self, context: &mut Context) {
        let Doing::Committing(commit) = &mut self.doing else { return };
        commit.stage = Stage::Finishing;
        let (Some(ttid), Some(master)) = (commit.ttid, self.master) else { return };
        let Doing::Committing(commit) = &self.doing else { return };
        context.history.attempt(ttid, commit.attempt());
        let partitions = |oids: Vec<Oid>| -> Vec<Partition> {
            let found: BTreeSet<_> =
                oids.into_iter().filter_map(|oid| self.partition_of(oid)).collect();
            found.into_iter().collect()
        };
        let pack = commit.pack.as_ref();
        let message = AskFinishTransaction {
            ttid,
            oids: commit.with(|change| matches!(change, Change::Store(_))),
            deleted: partitions(commit.with(|change| *change == Change::Delete)),
            checked: partitions(commit.with(|change| *change == Change::Check)),
            pack: pack.map(|pack| PackRequest { oids: pack.oids.clone(), tid: pack.until }),
        };
        context.net.send(self.end(), master, message);
    }

    /// Gives the transaction up.
    fn abort(&mut self, context: &mut Context) {
        let doing = std::mem::replace(&mut self.doing, Doing::Nothing);
        let Doing::Committing(commit) = doing else { return };
        self.forget_orders();
        let Commit { ttid: Some(ttid), involved, .. } = *commit else { return };
        context.counts.aborts += 1;
        context.history.abort(ttid);
        for link in involved.iter().filter_map(|node| self.links.get(node)) {
            if link.is_ready {
                let message = AbortTransaction { ttid, nodes: Vec::new() };
                context.net.send(self.end(), link.wire, message);
            }
        }
        if let Some(master) = self.master {
            let nodes = involved.into_iter().collect();
            context.net.send(self.end(), master, AbortTransaction { ttid, nodes });
        }
    }
}

/// The content of an object, like no other.
fn content(oid: Oid, number: Tid) -> Vec<u8> {
    let mut data = format!("{oid} {number} ").into_bytes();
    // Some are long enough for several columns to matter.
    data.resize(data.len() + (number.0 % 7) as usize * 40, b'.');
    data
}
