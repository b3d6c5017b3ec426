//! What was committed: the truth that everything else is compared with.
//!
//! A transaction is committed when the master decides so, or when a recovery finds it locked. One
//! whose master went away between is open until then.

use std::collections::{BTreeMap, BTreeSet};

use zodium_neo::TableId;
use zodium_types::{Oid, Tid, TransactionMetadata};

/// What a transaction does to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Store(Vec<u8>),
    Delete,
    /// Only the serial is checked.
    Check,
}

/// A transaction that a client has asked to commit.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// By object: the serial that it is based on, and the change.
    pub(super) objects: BTreeMap<Oid, (Tid, Change)>,
    pub(super) pack: Option<Pack>,
}

/// What the client says of a transaction: like no other.
pub(super) fn metadata_of(ttid: Tid) -> TransactionMetadata {
    let text = |what: &str| format!("{what} {ttid}").into_bytes();
    TransactionMetadata {
        user: text("user"),
        description: text("description"),
        extension: text("extension"),
    }
}

/// An order to pack.
#[derive(Clone, Debug)]
pub(super) struct Pack {
    /// `None`: all objects.
    pub(super) oids: Option<Vec<Oid>>,
    pub(super) until: Tid,
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The master has not decided.
    Open,
    Committed(Tid),
    Aborted,
    /// Committed, and cut off since. A client may be told of the commit later.
    Truncated,
}

/// A committed transaction.
#[derive(Clone, Debug)]
pub(super) struct Committed {
    pub(super) ttid: Tid,
    pub(super) attempt: Attempt,
}

/// What was committed, and what is open.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) committed: BTreeMap<Tid, Committed>,
    /// Asked to commit, with the tid that the master has chosen.
    asked: BTreeMap<Tid, (Tid, Attempt)>,
    attempts: BTreeMap<Tid, Attempt>,
    outcomes: BTreeMap<Tid, Outcome>,
    /// The last partition table that a master has sent.
    pub(super) last_table: Option<TableId>,
    /// Some storages may have been told to truncate, and others not.
    pub(super) is_truncating: bool,
    /// Some storages may have truncated, and others not: all must take part.
    pub(super) is_cut: bool,
    /// How often the history was truncated.
    pub(super) cuts: u64,
    /// The ttids that real masters have given.
    given: BTreeSet<Tid>,
    /// The transactions after which real masters have had storages truncate.
    ordered_cuts: BTreeSet<Tid>,
}

impl History {
    /// A client asks to commit.
    pub(super) fn attempt(&mut self, ttid: Tid, attempt: Attempt) {
        self.attempts.insert(ttid, attempt);
        self.outcomes.insert(ttid, Outcome::Open);
    }

    /// The master has chosen a tid, and asks the storages to lock the transaction.
    pub(super) fn ask(&mut self, ttid: Tid, tid: Tid) {
        if let Some(attempt) = self.attempts.remove(&ttid) {
            self.asked.insert(ttid, (tid, attempt));
        }
    }

    /// The transactions that storages were asked to lock, and that are not decided.
    pub(super) fn open(&self) -> impl Iterator<Item = Tid> {
        self.asked.keys().copied()
    }

    /// The transaction is committed.
    pub(super) fn commit(&mut self, ttid: Tid, tid: Tid) -> Result<(), String> {
        let Some((chosen, attempt)) = self.asked.remove(&ttid) else {
            let outcome = self.outcomes.get(&ttid);
            return Err(format!("transaction {ttid} is found locked with {tid}, but {outcome:?}"));
        };
        if chosen != tid {
            return Err(format!("transaction {ttid} is found locked with {tid}, not {chosen}"));
        }
        for (oid, (serial, _)) in &attempt.objects {
            let newest = self.newest(*oid, tid);
            if newest != *serial && !self.is_forgotten(*oid, tid) {
                let text = "is based on serial";
                return Err(format!("transaction {tid} {text} {serial} of {oid}, not {newest}"));
            }
        }
        self.outcomes.insert(ttid, Outcome::Committed(tid));
        self.committed.insert(tid, Committed { ttid, attempt });
        Ok(())
    }

    /// A real master begins a transaction.
    pub(super) fn give(&mut self, ttid: Tid) -> Result<(), String> {
        match self.given.insert(ttid) {
            true => Ok(()),
            false => Err(format!("the ttid {ttid} is given twice")),
        }
    }

    /// A real master says that it has committed a transaction; whether that was open. Another one
    /// may have taken over, and have committed what this one had storages lock.
    pub(super) fn decide(&mut self, ttid: Tid, tid: Option<Tid>) -> Result<bool, String> {
        match self.outcome(ttid) {
            Some(Outcome::Committed(other)) if tid.is_none_or(|tid| tid == other) => {
                return Ok(false);
            }
            Some(Outcome::Truncated) => return Ok(false),
            _ => {}
        }
        let chosen = self.asked.get(&ttid).map(|(tid, _)| *tid);
        let (tid, last) = (tid.or(chosen).unwrap_or_default(), self.last_tid());
        if tid <= last {
            return Err(format!("{ttid} is committed with {tid}, after {last}"));
        }
        self.commit(ttid, tid).map(|()| true)
    }

    /// Whether storages were asked to lock a transaction with this tid that changes an object.
    pub(super) fn is_locking(&self, oid: Oid, tid: Tid) -> bool {
        let mut asked = self.asked.values().filter(|(chosen, _)| *chosen == tid);
        asked.any(|(_, attempt)| attempt.objects.contains_key(&oid))
    }

    /// The ttid that storages were asked to lock with a tid.
    pub(super) fn asked_with(&self, tid: Tid) -> Option<Tid> {
        self.asked.iter().find(|(_, (chosen, _))| *chosen == tid).map(|(ttid, _)| *ttid)
    }

    /// What storages were asked to lock, by tid: ttid and changed objects.
    pub(super) fn undecided(&self) -> BTreeMap<Tid, (Tid, BTreeSet<Oid>)> {
        let changed = |attempt: &Attempt| {
            let objects = attempt.objects.iter();
            let changed = objects.filter(|(_, (_, change))| *change != Change::Check);
            changed.map(|(oid, _)| *oid).collect()
        };
        let all = self.asked.iter();
        all.map(|(ttid, (tid, attempt))| (*tid, (*ttid, changed(attempt)))).collect()
    }

    /// Those that clients have asked to commit, and no master has had locked, will not be.
    pub(super) fn abort_unasked(&mut self) {
        let ttids: Vec<Tid> = self.attempts.keys().copied().collect();
        ttids.into_iter().for_each(|ttid| self.abort(ttid));
    }

    /// The transaction will not be committed.
    pub(super) fn abort(&mut self, ttid: Tid) {
        self.attempts.remove(&ttid);
        if self.asked.remove(&ttid).is_some() || self.outcome(ttid) == Some(Outcome::Open) {
            self.outcomes.insert(ttid, Outcome::Aborted);
        }
    }

    /// A recovery has found all that is committed: the rest is not.
    pub(super) fn settle(&mut self) {
        let open: BTreeSet<Tid> = self.asked.keys().chain(self.attempts.keys()).copied().collect();
        open.into_iter().for_each(|ttid| self.abort(ttid));
    }

    /// Forgets what is after a transaction.
    pub(super) fn truncate(&mut self, tid: Tid) {
        self.cuts += 1;
        for committed in self.committed.split_off(&tid.next()).into_values() {
            self.outcomes.insert(committed.ttid, Outcome::Truncated);
        }
    }

    /// A real master has storages truncate after a transaction; whether that is new.
    pub(super) fn order_cut(&mut self, tid: Tid) -> bool {
        self.ordered_cuts.insert(tid)
    }

    /// The last transaction before another one after which storages were to truncate.
    pub(super) fn cut_before(&self, tid: Tid) -> Option<Tid> {
        self.ordered_cuts.range(..tid).next_back().copied()
    }

    /// Storages have truncated, or were told by a master that the others did not follow.
    pub(super) fn forget_cuts(&mut self) {
        self.ordered_cuts.clear();
    }

    pub(super) fn outcome(&self, ttid: Tid) -> Option<Outcome> {
        self.outcomes.get(&ttid).copied()
    }

    pub(super) fn last_tid(&self) -> Tid {
        self.committed.last_key_value().map_or(Tid::ZERO, |(tid, _)| *tid)
    }

    pub(super) fn last_pack(&self) -> Option<Tid> {
        let mut packs = self.committed.iter().rev();
        packs.find(|(_, committed)| committed.attempt.pack.is_some()).map(|(tid, _)| *tid)
    }

    /// The last change of an object before a transaction: its serial, and data unless deleted.
    pub(super) fn record(&self, oid: Oid, before: Tid) -> Option<(Tid, Option<&[u8]>)> {
        let earlier = self.committed.range(..before).rev();
        let mut changes = earlier.filter_map(|(tid, committed)| {
            match committed.attempt.objects.get(&oid).map(|(_, change)| change) {
                Some(Change::Store(data)) => Some((*tid, Some(&data[..]))),
                Some(Change::Delete) => Some((*tid, None)),
                Some(Change::Check) | None => None,
            }
        });
        changes.next()
    }

    /// The transaction that changes an object next after another one.
    pub(super) fn next(&self, oid: Oid, serial: Tid) -> Option<Tid> {
        let is_change = |(_, change): &(Tid, Change)| *change != Change::Check;
        let mut later = self.committed.range(serial.next()..);
        let next = later.find(|(_, one)| one.attempt.objects.get(&oid).is_some_and(is_change));
        next.map(|(tid, _)| *tid)
    }

    /// The serial of an object before a transaction; [`Tid::ZERO`] if it does not exist.
    pub(super) fn newest(&self, oid: Oid, before: Tid) -> Tid {
        self.record(oid, before).map_or(Tid::ZERO, |(tid, _)| tid)
    }

    /// Whether an object was deleted, and a pack has removed the deletion: any serial will do.
    fn is_forgotten(&self, oid: Oid, before: Tid) -> bool {
        let Some((serial, None)) = self.record(oid, before) else { return false };
        let packs = self.committed.values().filter_map(|one| one.attempt.pack.as_ref());
        let is_packed = |pack: &Pack| {
            pack.until >= serial && pack.oids.as_ref().is_none_or(|oids| oids.contains(&oid))
        };
        packs.into_iter().any(is_packed)
    }

    /// Whether a revision is left when all packs are done.
    pub(super) fn is_kept(&self, oid: Oid, serial: Tid) -> bool {
        self.records().contains_key(&(oid, serial))
    }

    /// All records that are left when all packs are done.
    pub(super) fn records(&self) -> BTreeMap<(Oid, Tid), Option<Vec<u8>>> {
        let mut records = BTreeMap::new();
        for (tid, committed) in &self.committed {
            for (oid, (_, change)) in &committed.attempt.objects {
                match change {
                    Change::Store(data) => records.insert((*oid, *tid), Some(data.clone())),
                    Change::Delete => records.insert((*oid, *tid), None),
                    Change::Check => continue,
                };
            }
        }
        let packs = self.committed.values().filter_map(|one| one.attempt.pack.as_ref());
        packs.for_each(|pack| carry_out(pack, &mut records));
        records
    }
}

fn carry_out(pack: &Pack, records: &mut BTreeMap<(Oid, Tid), Option<Vec<u8>>>) {
    let all: BTreeSet<Oid> = records.keys().map(|(oid, _)| *oid).collect();
    let is_listed = |oid: &Oid| pack.oids.as_ref().is_none_or(|oids| oids.contains(oid));
    for oid in all.into_iter().filter(is_listed) {
        let old = records.range((oid, Tid::ZERO)..=(oid, pack.until));
        let mut old: Vec<_> = old.map(|(key, data)| (*key, data.is_none())).collect();
        // The last one stays, unless it is a deletion.
        if old.last().is_some_and(|(_, is_deletion)| !is_deletion) {
            old.pop();
        }
        old.iter().for_each(|(key, _)| drop(records.remove(key)));
    }
}
