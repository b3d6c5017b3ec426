//! The ground truth: every commit attempt of a client, and every transaction in the file.
//!
//! Only `log_reader` reads the file as it grows, so nothing here relies on the server's word.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use zodium_disk::{Disk, DiskFile, MemoryDisk, OpenMode};
use zodium_types::{Oid, Tid};

use crate::log_reader::{FIRST, Written, read_transaction};
use crate::record::Attempt;

/// A client's attempt to commit a transaction.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    pub(crate) client: usize,
    /// What it writes: base serial and data by object.
    pub(crate) writes: BTreeMap<Oid, (Tid, Bytes)>,
    /// Serials that must still be current when it commits.
    pub(crate) current: BTreeMap<Oid, Tid>,
    /// Whether the client has requested its finish.
    pub(crate) asked: bool,
    /// The tid that the client was told.
    pub(crate) acknowledged: Option<Tid>,
    /// Its tid in the file.
    pub(crate) committed: Option<Tid>,
}

/// A committed transaction.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) tid: Tid,
    pub(crate) attempt: Attempt,
    /// Oids in ascending order.
    pub(crate) oids: Vec<Oid>,
}

/// All attempts and transactions.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) attempts: Vec<Tried>,
    pub(crate) transactions: Vec<Committed>,
    revisions: FxHashMap<Oid, Vec<(Tid, Bytes)>>,
    /// Revisions that are not visible at this tid or later may be gone.
    pub(crate) packed: Tid,
    file: Option<Arc<dyn DiskFile>>,
    /// The file has been read up to here.
    position: u64,
}

impl History {
    /// Reads the transactions appended to the file, the last of which ends at `end`; returns how
    /// many.
    pub(crate) fn absorb(&mut self, disk: &MemoryDisk, end: u64) -> Result<usize, String> {
        let file = open(disk)?;
        let is_same = self.file.as_ref().is_some_and(|known| Arc::ptr_eq(known, &file));
        if !is_same {
            self.file = Some(Arc::clone(&file));
            self.compare(file.as_ref(), end)?;
        }
        let mut count = 0;
        while self.position < end {
            let written = read_transaction(file.as_ref(), self.position)?;
            self.position = written.end;
            self.commit(&written)?;
            count += 1;
        }
        if self.position == end {
            Ok(count)
        } else {
            Err(format!(
                "the file has {end} bytes, but its last transaction ends at {}",
                self.position
            ))
        }
    }

    /// Compares with another file, which must begin with all committed transactions, except for
    /// what a pack may have dropped.
    fn compare(&mut self, file: &dyn DiskFile, end: u64) -> Result<(), String> {
        self.position = FIRST;
        let last = self.last_tid();
        let mut known = 0;
        let mut left = FxHashMap::default();
        while self.position < end {
            let written = read_transaction(file, self.position)?;
            if written.tid > last {
                break;
            }
            let at = self.transactions[known..].iter().position(|c| c.tid == written.tid);
            let at =
                at.ok_or_else(|| format!("transaction {} was never committed", written.tid))?;
            self.compare_skipped(known, known + at)?;
            known += at + 1;
            let whole = self.transactions[known - 1].oids.len();
            if written.tid > self.packed && written.records.len() != whole {
                return Err(format!("transaction {} is not whole any more", written.tid));
            }
            for (oid, data) in &written.records {
                if self.revision(*oid, written.tid) != Some(data) {
                    return Err(format!("object {oid} of {} is not as committed", written.tid));
                }
                left.insert(*oid, written.tid);
            }
            self.position = written.end;
        }
        self.compare_skipped(known, self.transactions.len())?;
        for (oid, revisions) in &self.revisions {
            if left.get(oid) != revisions.last().map(|(tid, _)| tid) {
                return Err(format!("object {oid} has lost its last revision"));
            }
        }
        Ok(())
    }

    fn compare_skipped(&self, from: usize, to: usize) -> Result<(), String> {
        let lost = self.transactions[from..to].iter().find(|c| c.tid > self.packed);
        lost.map_or(Ok(()), |lost| Err(format!("transaction {} is lost", lost.tid)))
    }

    /// Adds a committed transaction, after checking it against its attempt.
    fn commit(&mut self, written: &Written) -> Result<(), String> {
        let tid = written.tid;
        if tid <= self.last_tid() {
            return Err(format!("{tid} comes after {}", self.last_tid()));
        }
        let number = std::str::from_utf8(&written.description).ok().and_then(|t| t.parse().ok());
        let attempt = Attempt(number.ok_or("a transaction that no client tried")?);
        let tried = self.attempts.get(attempt.place()).ok_or("an attempt that there was not")?;
        if !tried.asked || tried.committed.is_some() {
            let how = if tried.asked { "twice" } else { "unasked" };
            return Err(format!(
                "attempt {} of client {} is committed {how}",
                attempt.0, tried.client
            ));
        }
        let records: BTreeMap<_, _> =
            written.records.iter().map(|(oid, data)| (*oid, data)).collect();
        let wanted: BTreeMap<_, _> =
            tried.writes.iter().map(|(oid, (_, data))| (*oid, data)).collect();
        if records != wanted || records.len() != written.records.len() {
            return Err(format!("transaction {tid} is not what attempt {} wrote", attempt.0));
        }
        let bases = tried.writes.iter().map(|(oid, (base, _))| (oid, base)).chain(&tried.current);
        for (oid, base) in bases {
            let current = self.revisions.get(oid).and_then(|r| r.last()).map_or(Tid::ZERO, |r| r.0);
            if current != *base {
                return Err(format!(
                    "{tid} is based on {base} of {oid}, but {current} was current"
                ));
            }
        }
        for (oid, data) in &written.records {
            self.revisions.entry(*oid).or_default().push((tid, data.clone()));
        }
        let oids = records.into_keys().collect();
        self.transactions.push(Committed { tid, attempt, oids });
        self.attempts[attempt.place()].committed = Some(tid);
        Ok(())
    }

    pub(crate) fn last_tid(&self) -> Tid {
        self.transactions.last().map_or(Tid::ZERO, |committed| committed.tid)
    }

    fn revision(&self, oid: Oid, tid: Tid) -> Option<&Bytes> {
        let revisions = self.revisions.get(&oid)?;
        let at = revisions.binary_search_by_key(&tid, |(tid, _)| *tid).ok()?;
        Some(&revisions[at].1)
    }

    /// The revision of an object before `before`, and the tid of the next one.
    pub(crate) fn before(&self, oid: Oid, before: Tid) -> Option<(Tid, &Bytes, Option<Tid>)> {
        let revisions = self.revisions.get(&oid)?;
        let count = revisions.partition_point(|(tid, _)| *tid < before);
        let (tid, data) = revisions.get(count.checked_sub(1)?)?;
        Some((*tid, data, revisions.get(count).map(|(tid, _)| *tid)))
    }

    /// All objects with all their revisions.
    pub(crate) fn revisions(&self) -> impl Iterator<Item = (Oid, &[(Tid, Bytes)])> {
        self.revisions.iter().map(|(oid, revisions)| (*oid, &revisions[..]))
    }

    /// The transaction that follows `tid`.
    pub(crate) fn next_after(&self, tid: Tid) -> Option<&Committed> {
        self.transactions.get(self.transactions.partition_point(|c| c.tid <= tid))
    }

    /// The transactions after `since` up to `until`.
    pub(crate) fn between(&self, since: Tid, until: Tid) -> &[Committed] {
        let place = |tid: Tid| self.transactions.partition_point(|c| c.tid <= tid);
        &self.transactions[place(since)..place(until).max(place(since))]
    }
}

pub(crate) fn path() -> &'static Path {
    Path::new("Data.fs")
}

fn open(disk: &MemoryDisk) -> Result<Arc<dyn DiskFile>, String> {
    disk.open(path(), OpenMode::Read).map_err(|error| format!("cannot look at the file: {error}"))
}
