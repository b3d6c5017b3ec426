//! Checks the blobs of a file: each record of a blob must have its file in the blob directory, and
//! each file its record. The files must have the recorded lengths and sums.
//!
//! Key decision: the directory is listed before the data file is opened. A blob's file gets its
//! name before its record is written. So a file without a record is not part of a commit in
//! progress, except for the latest ones, whose records are waited for.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use zodium_blobs::BlobDirectory;
use zodium_blobs::is_blob_record;
use zodium_disk::{Disk, DiskFile};
use zodium_types::{Oid, Tid, TransactionStatus};

use super::blob_data::{BlobData, BlobRecord};
use super::{CheckOptions, PATIENCE_STEP};
use crate::FileStorageError;
use crate::format::{DATA_HEADER_BYTES, Damage, DamageKind};
use crate::scan::{Piece, RecordLookup, SeenRecord, Walk, Window};

/// Bytes of a record that are enough to see whether its class is that of blobs.
const CLASS_BYTES: u64 = 256;

/// Which blobs to check.
#[derive(Clone, Copy, Debug)]
pub struct BlobsToCheck<'a> {
    /// Where they are. Open it for reading only: then nothing there is changed.
    pub directory: &'a BlobDirectory,
    /// Whether to read them, and compare their bytes with the recorded sums. Lengths are compared
    /// in any case.
    pub data: bool,
}

/// What was found of a file's blobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedBlobs {
    /// Records of blobs, of all revisions.
    pub records: u64,
    /// Those of them that have no file.
    pub missing: u64,
    /// Those of them whose file is not what was committed.
    pub damaged: u64,
    /// Those of them of which nothing is recorded that their file could be compared with.
    pub unrecorded: u64,
    /// Files that no record is of.
    pub orphaned: u64,
    /// The data file was packed or replaced during the check, so records and files could not be
    /// compared.
    pub is_replaced: bool,
}

/// Compares a directory with the records that are met.
pub(crate) struct BlobCheck<'a> {
    directory: &'a BlobDirectory,
    /// Files whose records were not met yet.
    files: FxHashSet<(Oid, Tid)>,
    /// Positions of records without a file.
    missing: Vec<BlobRecord>,
    /// Records whose files have another length than is recorded: found, and recorded.
    wrong: Vec<(BlobRecord, u64, u64)>,
    /// Records whose files are to be read; `None`: none are.
    to_read: Option<BlobData>,
    unrecorded: u64,
    records: u64,
    last_tid: Tid,
}

impl<'a> BlobCheck<'a> {
    /// Lists the directory.
    pub(crate) fn list(blobs: BlobsToCheck<'a>) -> Result<BlobCheck<'a>, FileStorageError> {
        let BlobsToCheck { directory, data } = blobs;
        let mut files = FxHashSet::default();
        directory.each_committed(&mut |oid, tid| {
            files.insert((oid, tid));
        })?;
        Ok(BlobCheck {
            directory,
            files,
            missing: Vec::new(),
            wrong: Vec::new(),
            to_read: data.then(BlobData::default),
            unrecorded: 0,
            records: 0,
            last_tid: Tid::ZERO,
        })
    }

    /// Takes the records of a piece.
    pub(crate) fn add(&mut self, piece: &Piece, window: &mut Window, lookup: &mut RecordLookup) {
        self.last_tid = self.last_tid.max(piece.tid.unwrap_or(Tid::ZERO));
        if piece.status() == Some(TransactionStatus::Undone) {
            return;
        }
        for record in &piece.records {
            if !is_blob(record, window, lookup) {
                continue;
            }
            let (position, header) = (record.entry.position, record.entry.header);
            self.records += 1;
            let (oid, tid) = (header.oid, header.tid);
            let was_there = self.files.remove(&(oid, tid));
            let record = BlobRecord { position, oid, tid };
            match self.directory.length_of(oid, tid) {
                Ok(Some(length)) => self.compare_length(record, length),
                _ if was_there => {}
                _ => self.missing.push(record),
            }
        }
    }

    fn compare_length(&mut self, record: BlobRecord, found: u64) {
        match self.directory.recorded(record.oid, record.tid) {
            None => self.unrecorded += 1,
            Some(recorded) if recorded.length != found => {
                self.wrong.push((record, found, recorded.length));
            }
            Some(recorded) => {
                self.to_read.iter_mut().for_each(|to_read| to_read.add(record, recorded));
            }
        }
    }

    /// Reports what does not fit, once the file was read up to `end`.
    pub(crate) fn conclude(
        mut self,
        disk: &dyn Disk,
        options: &CheckOptions<'_>,
        file: &Arc<dyn DiskFile>,
        end: u64,
        report: &mut dyn FnMut(Damage),
    ) -> CheckedBlobs {
        self.await_records(options, file, end);
        let now = disk.status(&options.path).ok().flatten();
        let opened = file.status().ok();
        let is_replaced = now.map(|now| now.identity) != opened.map(|opened| opened.identity);
        let mut found = CheckedBlobs { records: self.records, is_replaced, ..Default::default() };
        if is_replaced {
            return found;
        }
        found.unrecorded = self.unrecorded;
        let mut tell = |record: BlobRecord, kind, what: String| {
            let BlobRecord { position, oid, tid } = record;
            report(Damage { kind, position, what, oid: Some(oid), tid: Some(tid) });
        };
        let path_of = |record: BlobRecord| self.directory.path_of(record.oid, record.tid);
        for record in self.missing {
            found.missing += 1;
            let what = format!("no blob file at {}", path_of(record).display());
            tell(record, DamageKind::BlobMissing, what);
        }
        for (record, length, recorded) in self.wrong {
            found.damaged += 1;
            let path = path_of(record);
            let what = format!("{}: {length} bytes, {recorded} were committed", path.display());
            tell(record, DamageKind::BlobLength, what);
        }
        if let Some(to_read) = self.to_read {
            found.damaged += to_read.compare(disk, self.directory, options.progress, report);
        }
        let mut orphans: Vec<_> = self.files.into_iter().collect();
        orphans.sort_unstable();
        // A pack before this check may still be removing what it has dropped.
        orphans.retain(|(oid, tid)| self.directory.has(*oid, *tid).unwrap_or(true));
        for (oid, tid) in orphans {
            found.orphaned += 1;
            let path = self.directory.path_of(oid, tid);
            let what = format!("{}: no record is of this blob", path.display());
            let kind = DamageKind::BlobOrphaned;
            report(Damage { kind, position: 0, what, oid: Some(oid), tid: Some(tid) });
        }
        found
    }

    /// Takes the records of transactions that were committed during the check, as long as files
    /// are left that are younger than the last of them.
    fn await_records(&mut self, options: &CheckOptions<'_>, file: &Arc<dyn DiskFile>, end: u64) {
        let (mut position, mut left) = (end, options.patience);
        while self.files.iter().any(|(_, tid)| *tid > self.last_tid) {
            let length = file.length().unwrap_or(position);
            let mut lookup = RecordLookup::new(&options.path, file, length);
            let mut walk = Walk::starting_at(&options.path, file, length, position);
            while let Some(piece) = walk.step().filter(Piece::is_whole) {
                position = piece.end;
                self.add(&piece, &mut walk.window, &mut lookup);
            }
            if left.is_zero() {
                return;
            }
            let step = left.min(PATIENCE_STEP);
            std::thread::sleep(step);
            left -= step;
        }
    }
}

fn is_blob(record: &SeenRecord, window: &mut Window, lookup: &mut RecordLookup) -> bool {
    let entry = record.entry;
    match record.back {
        None => {
            let length = entry.header.data_length.min(CLASS_BYTES) as usize;
            let start = entry.position + DATA_HEADER_BYTES as u64;
            window.bytes(start, length).is_some_and(is_blob_record)
        }
        Some(0) => false,
        Some(back) => {
            let source = lookup.source(back, entry.header.oid).flatten();
            let data = source.and_then(|source| lookup.data(&source));
            data.is_some_and(|data| is_blob_record(&data))
        }
    }
}
