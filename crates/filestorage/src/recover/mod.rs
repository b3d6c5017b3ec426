//! Copies the whole transactions of a damaged data file into a new one.
//!
//! Key decision: nothing is guessed. A transaction is copied as it is, or the parts that are left
//! out are reported: bytes, transaction and objects. Values that the format has twice are repaired
//! (tids and positions in records), and so are those that follow from others (pointers to previous
//! records). A file without damage is copied byte for byte.

mod moved;
mod output;
mod salvage;

use std::collections::BTreeSet;
use std::path::PathBuf;

use zodium_disk::with_suffix;
use zodium_disk::{Disk, OpenMode};
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::check::{Paced, Source};
use crate::checksums::{Comparison, Distrust};
use crate::format::{
    DATA_HEADER_BYTES, Damage, DamageKind, MAGIC_BYTES, Magic, TRANSACTION_HEADER_BYTES,
    TransactionHeader,
};
use crate::open::resolve;
use crate::scan::{Piece, RecordLookup, SeenRecord, TransactionEntry, Walk};
use crate::{FileStorageError, checksums};
use output::{Body, Output, Planned, PlannedRecord};
use salvage::{Group, salvage};

/// What to recover.
pub struct RecoverOptions<'a> {
    /// The damaged file. Nothing is written to it.
    pub from: PathBuf,
    /// The file to write, which must not exist.
    pub to: PathBuf,
    /// Whether to copy the whole records of damaged transactions.
    pub partial: bool,
    /// Whether to leave out parts that do not match their checksums, though their structure is
    /// whole.
    pub drop_mismatches: bool,
    /// Called with the bytes that are done, and the number of all.
    pub progress: &'a dyn Fn(u64, u64),
}

/// The result for a damaged part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryKind {
    /// It is not in the new file.
    LeftOut,
    /// It was repaired.
    Mended,
    /// It is in the new file as it is, though it does not match its checksum.
    Mismatch,
}

/// A part that is not in the new file, or not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryNote {
    /// The result.
    pub kind: RecoveryKind,
    /// Where it begins in the damaged file.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// What is wrong there.
    pub what: String,
    /// The affected transactions, as far as they are known.
    pub tids: Vec<Tid>,
    /// Objects of which a record was left out. Others may have been in the destroyed bytes.
    pub oids: Vec<Oid>,
    /// Records between `start` and `end` that were copied nevertheless.
    pub records_kept: u64,
}

/// The result of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoverySummary {
    /// Length of the damaged file.
    pub bytes_before: u64,
    /// Length of the new one.
    pub bytes_after: u64,
    /// Bytes of the damaged file that were left out.
    pub bytes_left_out: u64,
    /// Transactions that were copied, including those that were copied in part.
    pub transactions: u64,
    /// Transactions that were copied in part.
    pub transactions_partial: u64,
    /// Records that were copied.
    pub records: u64,
    /// Gaps and records that were left out.
    pub left_out: u64,
    /// Repaired places.
    pub mended: u64,
    /// Those of them that are transactions with another tid. Files of blobs are named by tids, so
    /// those of these transactions are not found any more.
    pub redated: u64,
    /// Transactions and records that were copied though they do not match their checksums.
    pub mismatches: u64,
    /// Why the checksums beside the damaged file were not used, if there are some.
    pub distrust: Option<Distrust>,
}

/// Copies what is whole, and reports the rest.
///
/// # Errors
/// When the damaged file cannot be opened or is no FileStorage, and when the new one is there
/// already or cannot be written. What was written by then is removed.
pub fn recover(
    disk: &dyn Disk,
    options: &RecoverOptions<'_>,
    report: &mut dyn FnMut(&RecoveryNote),
) -> Result<RecoverySummary, FileStorageError> {
    let (from, to) = (resolve(disk, &options.from)?, options.to.clone());
    let options = &RecoverOptions { from, to, ..*options };
    let source = Source::open(disk, &options.from)?;
    let index = with_suffix(&options.to, ".index");
    if disk.exists(&index).map_err(|error| FileStorageError::io(&index, "look for", error))? {
        // It would be used as that of the new file.
        let exists = std::io::ErrorKind::AlreadyExists.into();
        return Err(FileStorageError::io(&index, "leave alone what is there", exists));
    }
    let magic = source.magic.unwrap_or(Magic::Fs30);
    let output = Output::create(disk, &options.to, &options.from, magic)?;
    let (path, end) = (&options.from, source.end);
    let walk = Walk::new(path, &source.file, end);
    let lookup = RecordLookup::new(path, &source.file, end);
    let opened = checksums::open(disk, path, OpenMode::Read, &source.file, end);
    let distrust = opened.as_ref().err().copied();
    let summary = RecoverySummary { bytes_before: end, distrust, ..RecoverySummary::default() };
    let checksums = opened.as_ref().ok().and_then(Option::as_ref);
    if let Some(opened) = checksums {
        opened.warn_if_shortened(path, end);
    }
    let comparison = checksums.map(|opened| Comparison::new(&opened.side, MAGIC_BYTES));
    let (comparison, damaged) = (comparison, BTreeSet::new());
    let mut recovery =
        Recovery { options, walk, lookup, output, comparison, damaged, summary, report };
    let result = recovery.run(&source).and_then(|()| recovery.output.finish(disk));
    if let Ok(bytes) = result {
        checksums::take_all(disk, &options.to, recovery.output.file(), bytes);
    }
    let mut summary = recovery.summary;
    let found = recovery.comparison.as_ref().and_then(Comparison::distrust);
    summary.distrust = summary.distrust.or(found);
    match result {
        Ok(bytes) => summary.bytes_after = bytes,
        Err(error) => {
            // Our own incomplete file. The first error is returned, not this one.
            let _removed = disk.remove(&options.to);
            return Err(error);
        }
    }
    Ok(summary)
}

struct Recovery<'a> {
    options: &'a RecoverOptions<'a>,
    walk: Walk,
    lookup: RecordLookup,
    output: Output,
    comparison: Option<Comparison<'a>>,
    /// Positions of records that do not match their checksums.
    damaged: BTreeSet<u64>,
    summary: RecoverySummary,
    report: &'a mut dyn FnMut(&RecoveryNote),
}

impl Recovery<'_> {
    fn run(&mut self, source: &Source) -> Result<(), FileStorageError> {
        if source.magic.is_none() {
            self.mended(&source.magic_damage(), "FS30 was put there");
        }
        let mut paced = Paced::new(self.options.progress, source.end);
        while let Some(mut piece) = self.walk.step() {
            paced.reach(piece.end);
            if let Some(comparison) = &mut self.comparison {
                let damages = comparison.compare(&mut self.walk.window, &piece);
                self.mismatches(damages, &mut piece);
            }
            match piece.transaction {
                Some(entry) if piece.is_whole() => self.take(&entry, piece)?,
                _ => self.take_parts(&piece)?,
            }
        }
        Ok(())
    }

    /// Drops parts that do not match their checksums if the options say so, else reports them.
    fn mismatches(&mut self, damages: Vec<Damage>, piece: &mut Piece) {
        if self.options.drop_mismatches {
            self.damaged.extend(damages.iter().map(|damage| damage.position));
            piece.damage.extend(damages);
            return;
        }
        for Damage { position, what, oid, tid, .. } in damages {
            self.summary.mismatches += 1;
            (self.report)(&RecoveryNote {
                kind: RecoveryKind::Mismatch,
                start: position,
                end: position,
                what,
                tids: tid.into_iter().collect(),
                oids: oid.into_iter().collect(),
                records_kept: 0,
            });
        }
    }

    /// Copies a transaction of which nothing is lost.
    fn take(&mut self, entry: &TransactionEntry, piece: Piece) -> Result<(), FileStorageError> {
        for damage in &piece.damage {
            match damage.kind {
                DamageKind::RecordField => {
                    self.mended(damage, "that of its transaction was put there")
                }
                DamageKind::Previous => self.mended(damage, "the right one was put there"),
                _ => {}
            }
        }
        let was = piece.tid.unwrap_or(entry.tid());
        let tid = if was > self.output.last_tid { was } else { self.output.last_tid.next() };
        if tid != was {
            self.redated(&piece, was, tid);
        } else if let Some(damage) = piece.damage.iter().find(|it| it.kind == DamageKind::Tid) {
            self.mended(damage, &format!("it was given the tid {tid}"));
        }
        let header = entry.header;
        let planned = Planned {
            position: entry.position,
            tid,
            status: piece.status().unwrap_or_default(),
            metadata: [header.user_length, header.description_length, header.extension_length],
            records: self.plan(&piece.records),
            records_end: Some(entry.records_end()),
        };
        self.write(&planned)
    }

    /// Reports that a piece is left out, or the records that are copied out of it.
    fn take_parts(&mut self, piece: &Piece) -> Result<(), FileStorageError> {
        let is_tail = piece.damage.iter().any(|damage| damage.kind == DamageKind::Tail);
        let groups = if is_tail { Vec::new() } else { self.salvage(piece) };
        let lost = piece.damage.iter().filter(|damage| damage.kind == DamageKind::Checksum);
        let lost = lost.filter_map(|damage| damage.oid);
        let mut note = RecoveryNote {
            kind: RecoveryKind::LeftOut,
            start: piece.start,
            end: piece.end,
            what: reasons(piece),
            tids: piece.tid.into_iter().chain(groups.iter().map(|group| group.tid)).collect(),
            oids: lost.collect(),
            records_kept: 0,
        };
        let mut bytes = piece.end - piece.start;
        for Group { records, .. } in &groups {
            if self.options.partial {
                let kept = records.iter().map(|record| record.entry.header.record_bytes());
                bytes = bytes.saturating_sub(kept.sum());
                note.records_kept += records.len() as u64;
            } else {
                note.oids.extend(records.iter().map(|record| record.entry.header.oid));
            }
        }
        note.tids.sort_unstable();
        note.tids.dedup();
        note.oids.sort_unstable();
        note.oids.dedup();
        self.left_out(&note, bytes);
        if self.options.partial {
            for group in &groups {
                self.take_group(group)?;
            }
        }
        Ok(())
    }

    fn salvage(&mut self, piece: &Piece) -> Vec<Group> {
        let after = self.output.last_tid;
        let window = &mut self.walk.window;
        let next = window.chunk::<TRANSACTION_HEADER_BYTES>(piece.end);
        let next = next.map(|bytes| TransactionHeader::parse(&bytes).tid);
        let before = next.filter(|next| *next > after).unwrap_or(Tid(u64::MAX));
        let mut groups = salvage(window, &mut self.lookup, piece.start..piece.end, (after, before));
        for group in &mut groups {
            group.records.retain(|record| !self.damaged.contains(&record.entry.position));
        }
        groups.retain(|group| !group.records.is_empty());
        groups
    }

    fn take_group(&mut self, group: &Group) -> Result<(), FileStorageError> {
        let (mut metadata, mut status) = ([0; 3], TransactionStatus::Normal);
        let first = group.records.first().map_or(0, |record| record.entry.position);
        let header = self.walk.window.chunk::<TRANSACTION_HEADER_BYTES>(group.position);
        let header = header.map(|bytes| TransactionHeader::parse(&bytes));
        let is_its = |header: &TransactionHeader| {
            header.tid == group.tid && group.position + header.records_offset() <= first
        };
        if let Some(header) = header.filter(is_its) {
            metadata = [header.user_length, header.description_length, header.extension_length];
            status = TransactionStatus::from_byte(header.status).unwrap_or_default();
        }
        let records = self.plan(&group.records);
        if records.is_empty() {
            return Ok(());
        }
        self.summary.transactions_partial += 1;
        let (position, tid) = (group.position, group.tid);
        self.write(&Planned { position, tid, status, metadata, records, records_end: None })
    }

    fn write(&mut self, planned: &Planned) -> Result<(), FileStorageError> {
        self.summary.transactions += 1;
        self.summary.records += planned.records.len() as u64;
        self.output.write(&mut self.walk.window, planned)
    }

    /// The records to write. Those whose data are lost are reported, and are not among them.
    fn plan(&mut self, records: &[SeenRecord]) -> Vec<PlannedRecord> {
        let mut planned = Vec::with_capacity(records.len());
        for record in records {
            match self.body(record) {
                Some(body) => planned.push(PlannedRecord { entry: record.entry, body }),
                None => self.record_left_out(record),
            }
        }
        planned
    }

    fn body(&mut self, record: &SeenRecord) -> Option<Body> {
        let (entry, oid) = (record.entry, record.entry.header.oid);
        let of = |position: u64, length| Body::Data {
            position: position + DATA_HEADER_BYTES as u64,
            length,
        };
        match record.back {
            None => Some(of(entry.position, entry.header.data_length)),
            Some(0) => Some(Body::Back(0)),
            Some(back) if back >= entry.position => None,
            Some(back) => {
                let is_record = self.lookup.record(back, oid).is_some();
                if let Some(moved) = self.output.moved.find(back).filter(|_| is_record) {
                    return Some(Body::Back(moved));
                }
                match self.lookup.source(back, oid)? {
                    None => Some(Body::Back(0)),
                    Some(source) if self.damaged.contains(&source.position) => None,
                    Some(source) if self.lookup.is_bounded(&source) => {
                        Some(of(source.position, source.header.data_length))
                    }
                    Some(_) => None,
                }
            }
        }
    }

    fn record_left_out(&mut self, record: &SeenRecord) {
        let SeenRecord { entry, back } = record;
        let bytes = entry.header.record_bytes();
        let note = RecoveryNote {
            kind: RecoveryKind::LeftOut,
            start: entry.position,
            end: entry.position + bytes,
            what: format!("a record whose data, at {}, are lost", back.unwrap_or(0)),
            tids: vec![entry.header.tid],
            oids: vec![entry.header.oid],
            records_kept: 0,
        };
        self.left_out(&note, bytes);
    }

    fn left_out(&mut self, note: &RecoveryNote, bytes: u64) {
        self.summary.left_out += 1;
        self.summary.bytes_left_out += bytes;
        (self.report)(note);
    }

    /// Reports a transaction that gets another tid, as one before it has a later one.
    fn redated(&mut self, piece: &Piece, was: Tid, tid: Tid) {
        self.summary.redated += 1;
        let what = "a tid that is not later than all before it".to_owned();
        let (kind, position) = (DamageKind::Tid, piece.start);
        let damage = Damage { kind, position, what, oid: None, tid: Some(was) };
        self.mended(&damage, &format!("transaction {was} was given the tid {tid}"));
    }

    fn mended(&mut self, damage: &Damage, how: &str) {
        self.summary.mended += 1;
        let position = damage.position;
        (self.report)(&RecoveryNote {
            kind: RecoveryKind::Mended,
            start: position,
            end: position,
            what: format!("{}: {how}", damage.what),
            tids: damage.tid.into_iter().collect(),
            oids: damage.oid.into_iter().collect(),
            records_kept: 0,
        });
    }
}

/// Why a piece is not a whole transaction.
fn reasons(piece: &Piece) -> String {
    let mut reasons = piece.damage.iter().filter(|damage| !damage.kind.is_mendable());
    let first = reasons.next().map_or(String::new(), |damage| match damage.position {
        at if at == piece.start => damage.what.clone(),
        at => format!("{} at {at}", damage.what),
    });
    match reasons.count() {
        0 => first,
        more => format!("{first} (and {more} more)"),
    }
}
