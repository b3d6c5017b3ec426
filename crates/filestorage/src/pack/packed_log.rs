//! The copy of the log that a pack makes.
//!
//! Before the pack time only what is kept is copied, each record with its own data and no
//! history. Everything after it is copied as it is but for the positions it mentions. There the
//! distance between a record and its copy only changes where a back pointer was replaced by data,
//! so a short list of distances translates any position. Records that are lost ([`Lost`]) change it
//! too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustc_hash::FxHashSet;
use tracing::warn;
use zodium_blobs::is_blob_record;
use zodium_pickle::PickleError;
use zodium_storage::PackStep;
use zodium_types::{Oid, Tid, TransactionStatus};

use super::dangling::{Dangling, Missing};
use super::lost::{Lost, LostRecord, Part};
use super::output::Output;
use super::reachable::{Reachable, Reason, strong_references};
use super::sums::Sums;
use super::watch::Watch;
use crate::FileStorageError;
use crate::format::{DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES, TransactionHeader};
use crate::read::{LogFile, Positions, Tids};
use crate::scan::{DataEntry, Scan, Step, TransactionEntry, WINDOW_BYTES};

/// Data are copied in pieces of this size.
const COPY_BYTES: u64 = 1 << 20;
/// The class of a blob is named within so many bytes of its record.
const BLOB_CLASS_BYTES_MAX: u64 = 256;
/// Bytes copied between two reports of progress.
const PROGRESS_BYTES: u64 = 8 << 20;

pub(super) struct PackedLog {
    source: Arc<LogFile>,
    /// What is left out since it cannot be read.
    lost: Arc<Lost>,
    /// References to objects that are gone with that.
    dangling: Dangling,
    reachable: Reachable,
    output: Output,
    sums: Option<Sums>,
    positions: Positions,
    tids: Tids,
    /// Where the copy of each of the [targets](Reachable::targets) stands.
    target_positions: Vec<u64>,
    /// Everything before this position of the source has been copied, as far as it is kept.
    copied: u64,
    /// Where copies begin to lie at another distance, ascending.
    shifts: Vec<Shift>,
    /// Garbage that a transaction being copied refers to, and that may come back with it.
    missed: Vec<Oid>,
    /// Revisions left out whose blobs are to be removed; `None` where there are no blobs.
    dropped_blobs: Option<Vec<(Oid, Tid)>>,
    cancelled: Arc<AtomicBool>,
}

/// From `source` on, the copies of records begin at `copy`.
#[derive(Clone, Copy, Debug)]
struct Shift {
    source: u64,
    copy: u64,
}

/// What a copied record holds.
enum Body {
    /// The data of the record that is copied.
    Same,
    /// The data of another record.
    Data(Bytes),
    /// A back pointer, 0 for a deletion.
    Back(u64),
}

/// Whether anything before the pack time is not kept. Returns at the first such record.
pub(super) fn frees_anything(
    source: &LogFile,
    reachable: &Reachable,
    watch: &Watch<'_>,
) -> Result<bool, FileStorageError> {
    let end = reachable.pack_end();
    let mut scan = source.scan_to(end, WINDOW_BYTES);
    let (mut position, mut report_at, mut frees) = (MAGIC_BYTES, PROGRESS_BYTES, false);
    while let Step::Transaction(entry) = scan.transaction(position)? {
        position = entry.next_position();
        frees |= entry.records_start() == entry.records_end();
        scan.try_each_record(&entry, |scan, record| {
            frees |= kept_body(source, reachable, false, scan, record)?.is_none();
            Ok(())
        })?;
        if frees {
            return Ok(true);
        }
        if position >= report_at {
            watch.report(PackStep::Copying, position, end)?;
            report_at = position + PROGRESS_BYTES;
        }
    }
    Ok(false)
}

impl PackedLog {
    pub(super) fn new(
        source: Arc<LogFile>,
        (reachable, lost): (Reachable, Arc<Lost>),
        (output, sums): (Output, Option<Sums>),
        has_blobs: bool,
        cancelled: &Arc<AtomicBool>,
    ) -> PackedLog {
        PackedLog {
            target_positions: vec![0; reachable.targets().len()],
            source,
            lost,
            dangling: Dangling::default(),
            reachable,
            output,
            sums,
            positions: Positions::new(),
            tids: Tids::NONE,
            copied: MAGIC_BYTES,
            shifts: Vec::new(),
            missed: Vec::new(),
            dropped_blobs: has_blobs.then(Vec::new),
            cancelled: Arc::clone(cancelled),
        }
    }

    /// Copies what is kept of the transactions up to the pack time. Fails where tids go back, if
    /// a later one stands among them: what is not kept of that one would be lost.
    pub(super) fn copy_kept(
        &mut self,
        pack_tid: Tid,
        watch: &Watch<'_>,
    ) -> Result<(), FileStorageError> {
        let source = Arc::clone(&self.source);
        let end = self.reachable.pack_end();
        let mut scan = source.scan_to(end, WINDOW_BYTES);
        let mut report_at = PROGRESS_BYTES;
        while let Step::Transaction(entry) = scan.transaction(self.copied)? {
            if entry.tid() > pack_tid {
                let (path, tid) = (source.path.clone(), entry.tid());
                return Err(FileStorageError::PackDisordered { path, tid });
            }
            self.copy_kept_of(&mut scan, &entry)?;
            self.copied = entry.next_position();
            if self.copied >= report_at {
                watch.report(PackStep::Copying, self.copied, source.end())?;
                report_at = self.copied + PROGRESS_BYTES;
            }
        }
        assert_eq!(self.copied, end, "the pack time lies between two transactions");
        self.shifts.push(Shift { source: end, copy: self.output.position() });
        Ok(())
    }

    /// Copies all later transactions up to what is committed now.
    pub(super) fn copy_later(&mut self) -> Result<(), FileStorageError> {
        let source = Arc::clone(&self.source);
        let mut scan = source.scan_to(source.end(), WINDOW_BYTES);
        while let Step::Transaction(entry) = scan.transaction(self.copied)? {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(FileStorageError::PackCancelled { path: source.path.clone() });
            }
            self.copy_whole(&mut scan, &entry)?;
            self.copied = entry.next_position();
        }
        assert_eq!(self.copied, scan.end(), "the log ends with a whole transaction");
        Ok(())
    }

    /// Revisions left out that have a blob. They can be taken once.
    pub(super) fn take_dropped_blobs(&mut self) -> Vec<(Oid, Tid)> {
        self.dropped_blobs.take().unwrap_or_default()
    }

    /// Makes what was copied so far durable.
    pub(super) fn sync(&mut self) -> Result<(), FileStorageError> {
        self.output.sync()?;
        if let Some(sums) = &mut self.sums {
            sums.sync(self.output.position());
        }
        Ok(())
    }

    /// Bytes committed that are not copied yet.
    pub(super) fn behind(&self) -> u64 {
        self.source.end() - self.copied
    }

    pub(super) fn source(&self) -> &LogFile {
        &self.source
    }

    /// Whether checksums of the copy were taken.
    pub(super) fn has_sums(&self) -> bool {
        self.sums.is_some()
    }

    pub(super) fn lost(&self) -> &Lost {
        &self.lost
    }

    /// References from what was copied to objects that are left out. They can be taken once.
    pub(super) fn take_dangling(&mut self) -> Dangling {
        std::mem::take(&mut self.dangling)
    }

    pub(super) fn output(&self) -> &Output {
        &self.output
    }

    /// The copy as a log of its own, to be read under the name of the old one. Nothing more can
    /// be copied then.
    pub(super) fn take_log(&mut self, cache_bytes: usize) -> LogFile {
        let positions = std::mem::take(&mut self.positions);
        let (file, end) = (Arc::clone(self.output.file()), self.output.position());
        let generation = self.source.generation + 1;
        let known = (end, self.tids);
        let log = LogFile::new(&self.source.path, file, positions, cache_bytes, known, generation);
        let sums = self.sums.take().map(|mut sums| {
            sums.write(end);
            sums.into_checksums(&log)
        });
        log.with_checksums(sums)
    }

    fn copy_kept_of(
        &mut self,
        scan: &mut Scan<'_>,
        entry: &TransactionEntry,
    ) -> Result<(), FileStorageError> {
        let (source, lost) = (Arc::clone(&self.source), Arc::clone(&self.lost));
        let mut start = None;
        let (mut kept_oids, mut dropped) = (FxHashSet::default(), Vec::new());
        lost.try_each(scan, entry, |scan, part| {
            let record = match part {
                Part::Sound(record) => record,
                Part::Lost(lost) => return self.copy_lost(scan, entry, &mut start, lost),
            };
            let has_older = self.positions.position(record.header.oid).is_some();
            let kept = kept_body(&source, &self.reachable, has_older, scan, record)?;
            let Some((reason, body)) = kept else {
                if self.dropped_blobs.is_some() && is_blob(&source, scan, record)? {
                    dropped.push(record.header.oid);
                }
                return Ok(());
            };
            if self.dropped_blobs.is_some() {
                kept_oids.insert(record.header.oid);
            }
            let start = match start {
                Some(start) => start,
                None => *start.insert(self.begin(scan, entry, TransactionStatus::Packed)?),
            };
            self.note_gone(scan, record)?;
            let position = self.write_record(scan, record, start, 0, &body)?;
            self.positions.publish(record.header.oid, position);
            if let Reason::Target(index) = reason {
                self.target_positions[index] = position;
            }
            Ok(())
        })?;
        if let Some(dropped_blobs) = &mut self.dropped_blobs {
            // Stored twice by the transaction, as the stock server does, it has one blob.
            dropped.retain(|oid| !kept_oids.contains(oid));
            dropped_blobs.extend(dropped.into_iter().map(|oid| (oid, entry.tid())));
        }
        start.map_or(Ok(()), |start| self.end(start))
    }

    /// Writes what takes the place of a lost record from before the pack time, if anything does.
    fn copy_lost(
        &mut self,
        scan: &mut Scan<'_>,
        entry: &TransactionEntry,
        start: &mut Option<u64>,
        lost: &LostRecord,
    ) -> Result<(), FileStorageError> {
        let has_older = lost.told.oid.is_some_and(|oid| self.positions.position(oid).is_some());
        let Some(deletion) = lost.deletion(has_older) else { return Ok(()) };
        let start = match *start {
            Some(start) => start,
            None => *start.insert(self.begin(scan, entry, TransactionStatus::Packed)?),
        };
        let position = self.write_record(scan, &deletion, start, 0, &Body::Back(0))?;
        self.positions.publish(deletion.header.oid, position);
        Ok(())
    }

    fn copy_whole(
        &mut self,
        scan: &mut Scan<'_>,
        entry: &TransactionEntry,
    ) -> Result<(), FileStorageError> {
        let status = entry.status().unwrap_or_default();
        let is_unseen = self.reachable.is_unseen(entry);
        let start = self.begin(scan, entry, status)?;
        let mut written: Vec<(Oid, u64)> = Vec::new();
        let lost = Arc::clone(&self.lost);
        lost.try_each(scan, entry, |scan, part| {
            let record = match part {
                Part::Sound(record) => record,
                Part::Lost(lost) => {
                    let older = lost.told.oid.and_then(|oid| self.positions.position(oid));
                    let is_again = written.iter().any(|(oid, _)| Some(*oid) == lost.told.oid);
                    if let Some(deletion) = lost.deletion(older.is_some() || is_again) {
                        let (body, previous) = (Body::Back(0), older.unwrap_or(0));
                        let copy = self.write_record(scan, &deletion, start, previous, &body)?;
                        written.push((deletion.header.oid, copy));
                    }
                    self.shift(lost.end);
                    return Ok(());
                }
            };
            if is_unseen {
                self.note_missed(scan, record)?;
            }
            self.note_gone(scan, record)?;
            let DataHeader { oid, data_length, .. } = record.header;
            let body = match data_length {
                0 => self.translated_body(oid, scan.back_pointer(record)?)?,
                _ => Body::Same,
            };
            let previous = self.positions.position(oid).unwrap_or(0);
            written.push((oid, self.write_record(scan, record, start, previous, &body)?));
            self.shift(record.position + record.header.record_bytes());
            Ok(())
        })?;
        self.end(start)?;
        // The records of one transaction have the same past: published when all are written.
        if status != TransactionStatus::Undone {
            for (oid, position) in written {
                self.positions.publish(oid, position);
            }
        }
        self.check_missed()
    }

    /// Writes the header of a transaction's copy, and where it stands.
    fn begin(
        &mut self,
        scan: &mut Scan<'_>,
        entry: &TransactionEntry,
        status: TransactionStatus,
    ) -> Result<u64, FileStorageError> {
        self.tids.note(entry.tid());
        let start = self.output.position();
        let header = TransactionHeader { status: status.to_byte(), ..entry.header };
        let metadata = scan.metadata_bytes(entry)?;
        self.output.append(|bytes| {
            header.write(bytes);
            bytes.extend_from_slice(metadata);
        })?;
        if let Some(sums) = &mut self.sums {
            sums.begin(start, &header, metadata);
        }
        Ok(start)
    }

    /// Writes the end of the transaction that begins at `start`, and its length.
    fn end(&mut self, start: u64) -> Result<(), FileStorageError> {
        let length = (self.output.position() - start).to_be_bytes();
        self.output.replace(start + TransactionHeader::LENGTH_OFFSET, length)?;
        self.output.append(|bytes| bytes.extend_from_slice(&length))?;
        if let Some(sums) = &mut self.sums {
            sums.end(length, self.output.position());
        }
        Ok(())
    }

    /// Writes a record within the transaction at `transaction` and says where.
    fn write_record(
        &mut self,
        scan: &mut Scan<'_>,
        record: &DataEntry,
        transaction: u64,
        previous: u64,
        body: &Body,
    ) -> Result<u64, FileStorageError> {
        let position = self.output.position();
        let data_length = match body {
            Body::Same => record.header.data_length,
            Body::Data(data) => data.len() as u64,
            Body::Back(_) => 0,
        };
        let header = DataHeader { previous, transaction, data_length, ..record.header };
        let mut bytes = Vec::with_capacity(DATA_HEADER_BYTES);
        header.write(&mut bytes);
        if let Some(sums) = &mut self.sums {
            sums.record(position);
        }
        self.append(&bytes)?;
        match body {
            Body::Same => self.copy_data(scan, record)?,
            Body::Data(data) => self.append(data)?,
            Body::Back(back) => self.append(&back.to_be_bytes())?,
        }
        Ok(position)
    }

    fn copy_data(
        &mut self,
        scan: &mut Scan<'_>,
        record: &DataEntry,
    ) -> Result<(), FileStorageError> {
        let mut offset = 0;
        while offset < record.header.data_length {
            let length = (record.header.data_length - offset).min(COPY_BYTES);
            let data = scan.data(record, offset, length as usize)?;
            self.append(data)?;
            offset += length;
        }
        Ok(())
    }

    /// Appends bytes of a record.
    fn append(&mut self, data: &[u8]) -> Result<(), FileStorageError> {
        if let Some(sums) = &mut self.sums {
            sums.add(data);
        }
        self.output.append(|bytes| bytes.extend_from_slice(data))
    }

    /// What the copy of a back pointer is: one to the copy of its target, or else the data.
    fn translated_body(&self, oid: Oid, back: u64) -> Result<Body, FileStorageError> {
        let copy = match back {
            0 => Some(0),
            _ if back < self.reachable.pack_end() => self.translate_target(back),
            _ => self.translate_later(back),
        };
        if let Some(copy) = copy {
            return Ok(Body::Back(copy));
        }
        let data = self.source.data_at(back, oid)?;
        Ok(data.map_or(Body::Back(0), Body::Data))
    }

    /// Where the copy of a target stands.
    fn translate_target(&self, position: u64) -> Option<u64> {
        let index = self.reachable.targets().binary_search(&position).ok()?;
        self.target_positions.get(index).copied().filter(|copy| *copy != 0)
    }

    /// Where the copy of a record after the pack time stands.
    fn translate_later(&self, position: u64) -> Option<u64> {
        let after = self.shifts.partition_point(|shift| shift.source <= position);
        let shift = self.shifts.get(after.checked_sub(1)?)?;
        Some(shift.copy + (position - shift.source))
    }

    /// Notes that the copy of what begins at `source` begins where the output ends.
    fn shift(&mut self, source: u64) {
        let copy = self.output.position();
        if self.translate_later(source) != Some(copy) {
            self.shifts.push(Shift { source, copy });
        }
    }

    /// Notes what a current record refers to that is left out.
    fn note_gone(
        &mut self,
        scan: &mut Scan<'_>,
        record: &DataEntry,
    ) -> Result<(), FileStorageError> {
        let DataEntry { position, header } = *record;
        let is_current = self.source.positions.position(header.oid) == Some(position);
        if self.lost.gone().is_empty() || !is_current {
            return Ok(());
        }
        let mut found = Vec::new();
        let read = self.each_reference(scan, record, |oid| found.push(oid))?;
        for oid in found.into_iter().filter(|oid| self.lost.gone().contains(oid)) {
            self.dangling.note(&self.source, (header.oid, position), oid, Missing::Damaged);
        }
        if let Err(error) = read {
            let DataHeader { oid, tid, .. } = header;
            warn!(%oid, %tid, %error, "references that cannot be read; they may lead to objects \
                that are dropped");
        }
        Ok(())
    }

    /// Gives the references of a record, which is sound. The inner result is that of its pickles.
    fn each_reference(
        &self,
        scan: &mut Scan<'_>,
        record: &DataEntry,
        found: impl FnMut(Oid),
    ) -> Result<Result<(), PickleError>, FileStorageError> {
        if record.header.data_length > 0 {
            // Fits: the scan has shown that the record lies within the file.
            let data = scan.data(record, 0, record.header.data_length as usize)?;
            return Ok(strong_references(data, found));
        }
        let back = scan.back_pointer(record)?;
        let data = self.source.data_at(back, record.header.oid)?;
        Ok(data.map_or(Ok(()), |data| strong_references(&data, found)))
    }

    /// Notes what a record refers to that was garbage when the pack began.
    fn note_missed(
        &mut self,
        scan: &mut Scan<'_>,
        record: &DataEntry,
    ) -> Result<(), FileStorageError> {
        let oid = record.header.oid;
        let mut missed = Vec::new();
        let found = self.each_reference(scan, record, |oid| missed.push(oid))?;
        missed.retain(|oid| self.reachable.garbage(*oid).is_some());
        self.missed.append(&mut missed);
        if let Err(error) = found {
            warn!(%oid, tid = %record.header.tid, %error, "references that cannot be read; \
                objects that only they refer to are not kept");
        }
        Ok(())
    }

    /// What was missed must have been written again, or been nothing but a deletion.
    fn check_missed(&mut self) -> Result<(), FileStorageError> {
        for oid in std::mem::take(&mut self.missed) {
            let Some(position) = self.reachable.garbage(oid) else { continue };
            if self.positions.position(oid).is_none()
                && self.source.data_at(position, oid)?.is_some()
            {
                return Err(FileStorageError::PackOvertaken { oid });
            }
        }
        Ok(())
    }
}

/// Whether a record is that of a blob.
fn is_blob(
    source: &LogFile,
    scan: &mut Scan<'_>,
    record: &DataEntry,
) -> Result<bool, FileStorageError> {
    if record.header.data_length > 0 {
        let length = record.header.data_length.min(BLOB_CLASS_BYTES_MAX);
        return Ok(is_blob_record(scan.data(record, 0, length as usize)?));
    }
    let back = scan.back_pointer(record)?;
    let data = source.data_at(back, record.header.oid)?;
    Ok(data.is_some_and(|data| is_blob_record(&data)))
}

/// What is kept of a record before the pack time. `has_older`: an older record of its object is.
fn kept_body(
    source: &LogFile,
    reachable: &Reachable,
    has_older: bool,
    scan: &mut Scan<'_>,
    record: &DataEntry,
) -> Result<Option<(Reason, Body)>, FileStorageError> {
    let Some(reason) = reachable.reason(record) else { return Ok(None) };
    if record.header.data_length > 0 {
        return Ok(Some((reason, Body::Same)));
    }
    let back = scan.back_pointer(record)?;
    let data = source.data_at(back, record.header.oid)?;
    Ok(match data {
        Some(data) => Some((reason, Body::Data(data))),
        // Without its deletion the older record would seem to be current.
        None if has_older || reason != Reason::Current => Some((reason, Body::Back(0))),
        None => None,
    })
}
