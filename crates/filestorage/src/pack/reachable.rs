//! Which records before the pack time are kept.
//!
//! Kept are two kinds of records. First the current one, at the pack time, of each object that can
//! be reached from the root at that time or from a later transaction. Second each record that a
//! later one points back to. So all that a transaction after the pack time refers to is there.
//!
//! Key decision: nothing is scanned before the pack time. The live index, once everything before
//! that time is in it, tells where each object stands; those that changed since are traced back
//! by what was written after it. One index of 8 bytes an object is all the memory needed: its top
//! bit is the mark.
//!
//! If records are lost ([`Lost`]) that the packed file would have, their references are not known.
//! Then no object counts as garbage.

use tracing::warn;
use zodium_pickle::{PickleError, Reference, references_of_record};
use zodium_storage::PackStep;
use zodium_types::{Oid, TransactionStatus};

use super::dangling::{Dangling, Missing};
use super::lost::{Lost, Part};
use super::watch::Watch;
use crate::FileStorageError;
use crate::read::{LogFile, Positions};
use crate::scan::{DataEntry, Scan, Step, TransactionEntry, WINDOW_BYTES};

/// In a position: the object is to be kept.
const MARK: u64 = 1 << 63;
/// Objects read in one go, in the order of the file and not in that of their discovery. More
/// would find more neighbours, but leave all their references pending at once.
const BATCH_OBJECTS: usize = 512;

pub(super) struct Reachable {
    /// Position of each object's current record at the pack time, with [`MARK`].
    current: Positions,
    /// Records before the pack time which later ones point back to, ascending.
    targets: Vec<u64>,
    /// The first transaction after the pack time.
    pack_end: u64,
    /// Transactions up to here have been taken into account.
    seen_end: u64,
    gc: bool,
    /// References that lead to no object.
    dangling: u64,
}

/// Why a record is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It was current at the pack time; a deletion need not be kept.
    Current,
    /// A later record points back to it, by this place among the targets.
    Target(usize),
}

impl Reachable {
    /// Looks at everything that is committed at the moment of the call.
    pub(super) fn find(
        log: &LogFile,
        pack_end: u64,
        lost: &Lost,
        watch: &Watch<'_>,
    ) -> Result<Reachable, FileStorageError> {
        let current = Positions::new();
        log.wait_indexed(pack_end);
        for (oid, position) in log.positions.iter() {
            if position < pack_end {
                current.publish(oid, position);
            }
        }
        // Only now: whatever the index showed beyond the pack time lies before this end.
        let seen_end = log.end();
        log.wait_indexed(seen_end);
        let (targets, gc) = (Vec::new(), watch.options.gc);
        let mut reachable = Reachable { current, targets, pack_end, seen_end, gc, dangling: 0 };
        reachable.trace_back(log, lost)?;
        reachable.gc &= !reachable.has_lost_references(lost);
        if reachable.gc && !reachable.current.is_empty() {
            let dangling = Marker::new(log, lost, &mut reachable, watch).mark()?;
            reachable.dangling = dangling.conclude(watch)?;
        }
        Ok(reachable)
    }

    /// Whether objects that cannot be reached are dropped.
    pub(super) fn drops_garbage(&self) -> bool {
        self.gc
    }

    /// Whether a record is lost that the packed file would have.
    fn has_lost_references(&self, lost: &Lost) -> bool {
        lost.records().any(|lost| {
            let position = lost.told.position;
            let current = lost.told.oid.and_then(|oid| self.current.position(oid));
            position >= self.pack_end
                || current == Some(position)
                || self.targets.binary_search(&position).is_ok()
        })
    }

    /// The first transaction after the pack time.
    pub(super) fn pack_end(&self) -> u64 {
        self.pack_end
    }

    /// References that were found to lead to no object.
    pub(super) fn dangling(&self) -> u64 {
        self.dangling
    }

    /// Whether a transaction came later than this was found out, so that it may refer to objects
    /// that are not kept.
    pub(super) fn is_unseen(&self, transaction: &TransactionEntry) -> bool {
        self.gc && transaction.position >= self.seen_end
    }

    /// Records before the pack time that later ones point back to, ascending.
    pub(super) fn targets(&self) -> &[u64] {
        &self.targets
    }

    /// Whether and why a record before the pack time is kept.
    pub(super) fn reason(&self, record: &DataEntry) -> Option<Reason> {
        if let Ok(index) = self.targets.binary_search(&record.position) {
            return Some(Reason::Target(index));
        }
        let marked = if self.gc { MARK } else { 0 };
        let current = self.current.position(record.header.oid) == Some(record.position | marked);
        current.then_some(Reason::Current)
    }

    /// The current record at the pack time of an object that was garbage then.
    pub(super) fn garbage(&self, oid: Oid) -> Option<u64> {
        self.current.position(oid).filter(|position| self.gc && position & MARK == 0)
    }

    /// Completes the index by what the later transactions point back to.
    fn trace_back(&mut self, log: &LogFile, lost: &Lost) -> Result<(), FileStorageError> {
        let before = 1..self.pack_end;
        for record in lost.records().filter(|lost| lost.told.position >= self.pack_end) {
            let previous = record.previous.filter(|previous| before.contains(previous));
            if let (Some(oid), Some(previous)) = (record.told.oid, previous) {
                self.current.publish(oid, previous);
            }
        }
        each_later_record(log, lost, (self.pack_end, self.seen_end), |scan, record| {
            if before.contains(&record.header.previous) {
                self.current.publish(record.header.oid, record.header.previous);
            }
            if record.header.data_length == 0 {
                let back = scan.back_pointer(record)?;
                if before.contains(&back) {
                    self.targets.push(back);
                }
            }
            Ok(())
        })?;
        self.targets.sort_unstable();
        self.targets.dedup();
        Ok(())
    }
}

/// Marks what can be reached.
struct Marker<'a> {
    log: &'a LogFile,
    lost: &'a Lost,
    reachable: &'a mut Reachable,
    watch: &'a Watch<'a>,
    /// Marked, but not read yet.
    pending: Vec<Mention>,
    read: u64,
    dangling: Dangling,
    unreadable: u64,
}

/// A reference that led to an object first.
struct Mention {
    oid: Oid,
    referrer: Oid,
}

impl<'a> Marker<'a> {
    fn new(
        log: &'a LogFile,
        lost: &'a Lost,
        reachable: &'a mut Reachable,
        watch: &'a Watch<'a>,
    ) -> Marker<'a> {
        let (dangling, pending) = (Dangling::default(), Vec::new());
        Marker { log, lost, reachable, watch, pending, read: 0, dangling, unreadable: 0 }
    }

    fn mark(mut self) -> Result<Dangling, FileStorageError> {
        if self.reachable.current.position(Oid::ROOT).is_none() {
            return Err(FileStorageError::RootMissing { path: self.log.path.clone() });
        }
        self.mention(Oid::ROOT, Oid::ROOT);
        self.follow()?;
        self.mark_from_later()?;
        if self.unreadable > 0 {
            warn!(file = %self.log.path.display(), records = self.unreadable,
                "records after the pack time whose references cannot be read; \
                 objects that only they refer to are not kept");
        }
        Ok(self.dangling)
    }

    /// Reads what is pending until nothing is.
    fn follow(&mut self) -> Result<(), FileStorageError> {
        while !self.pending.is_empty() {
            let start = self.pending.len().saturating_sub(BATCH_OBJECTS);
            let current = &self.reachable.current;
            let position = |oid| current.position(oid).unwrap_or(0) & !MARK;
            let batch = self.pending.drain(start..);
            let mut batch: Vec<_> = batch.map(|m| (position(m.oid), m.oid, m.referrer)).collect();
            batch.sort_unstable();
            self.read += batch.len() as u64;
            let total = self.reachable.current.len();
            self.watch.report(PackStep::Marking, self.read, total)?;
            for (position, oid, referrer) in batch {
                match self.log.data_at(position, oid)? {
                    Some(data) => self.mention_all(oid, &data)?,
                    None if oid == Oid::ROOT => {
                        return Err(FileStorageError::RootMissing { path: self.log.path.clone() });
                    }
                    None if oid == referrer => {}
                    None => self.note_dangling(oid, referrer, Missing::Deleted),
                }
            }
        }
        Ok(())
    }

    /// Marks what the transactions after the pack time refer to.
    fn mark_from_later(&mut self) -> Result<(), FileStorageError> {
        let (log, lost, pack_end) = (self.log, self.lost, self.reachable.pack_end);
        each_later_record(log, lost, (pack_end, self.reachable.seen_end), |scan, record| {
            let oid = record.header.oid;
            let length = record.header.data_length;
            let result = if length > 0 {
                // Fits: the scan has shown that the record lies within the file.
                let data = scan.data(record, 0, length as usize)?;
                self.mention_all(oid, data)
            } else {
                // Records after the pack time come by themselves.
                let back = scan.back_pointer(record)?;
                let data = if back < pack_end { log.data_at(back, oid)? } else { None };
                match data {
                    Some(data) => {
                        // Or else the old record would seem to be current at the pack time.
                        self.mention(oid, oid);
                        self.mention_all(oid, &data)
                    }
                    None => Ok(()),
                }
            };
            match result {
                // It stays what it is; a later pack will have to be told more.
                Err(FileStorageError::References { .. }) => self.unreadable += 1,
                result => result?,
            }
            self.follow()
        })
    }

    fn mention_all(&mut self, referrer: Oid, data: &[u8]) -> Result<(), FileStorageError> {
        strong_references(data, |oid| self.mention(oid, referrer))
            .map_err(|source| FileStorageError::References { oid: referrer, source })
    }

    fn mention(&mut self, oid: Oid, referrer: Oid) {
        match self.reachable.current.position(oid) {
            Some(position) if position & MARK != 0 => {}
            Some(position) => {
                self.reachable.current.publish(oid, position | MARK);
                self.pending.push(Mention { oid, referrer });
            }
            // New since the pack time, or never there.
            None if self.log.positions.position(oid).is_some() => {}
            None => self.note_dangling(oid, referrer, Missing::NeverThere),
        }
    }

    fn note_dangling(&mut self, oid: Oid, referrer: Oid, missing: Missing) {
        // An object keeps its class: any of its records tells it.
        let position = self.reachable.current.position(referrer).map(|position| position & !MARK);
        let position = position.or_else(|| self.log.positions.position(referrer)).unwrap_or(0);
        self.dangling.note(self.log, (referrer, position), oid, missing);
    }
}

/// The objects that a record keeps alive.
pub(super) fn strong_references(
    data: &[u8],
    mut found: impl FnMut(Oid),
) -> Result<(), PickleError> {
    references_of_record(data, &mut |reference| {
        if let Reference::Strong(oid) = reference {
            found(oid);
        }
    })
}

/// Visits the records of transactions from `start` up to `end`, those of undone ones and lost ones
/// excepted.
fn each_later_record(
    log: &LogFile,
    lost: &Lost,
    (start, end): (u64, u64),
    mut visit: impl FnMut(&mut Scan<'_>, &DataEntry) -> Result<(), FileStorageError>,
) -> Result<(), FileStorageError> {
    let mut scan = log.scan_to(end, WINDOW_BYTES);
    let mut position = start;
    while let Step::Transaction(entry) = scan.transaction(position)? {
        position = entry.next_position();
        if entry.status() != Some(TransactionStatus::Undone) {
            lost.try_each(&mut scan, &entry, |scan, part| match part {
                Part::Sound(record) => visit(scan, record),
                Part::Lost(_) => Ok(()),
            })?;
        }
    }
    Ok(())
}
