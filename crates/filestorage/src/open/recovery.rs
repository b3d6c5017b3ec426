//! Opens a data file: finds its committed bytes, and the current record of each object.
//!
//! An index file avoids reading the whole data file, but is used only after it was compared with
//! the data. Otherwise the whole file is scanned. The unfinished tail that a crash left is copied
//! to a `.trN` file and cut. A damaged file is refused, never cut.

use std::path::Path;
use std::sync::Arc;

use tracing::warn;
use zodium_disk::{Disk, DiskFile, OpenMode};
use zodium_types::{Oid, Tid, TransactionStatus};

use super::index_snapshot::{self, Found};
use super::lost_file;
use super::options::OpenOptions;
use super::set_aside::BrokenEnd;
use super::torn::TornTransactionDetector;
use crate::checksums::{Distrust, Opened, Passage};
use crate::format::{DATA_HEADER_BYTES, Damage, DamageKind, DataHeader, MAGIC_BYTES, Magic};
use crate::read::{Positions, Tids};
use crate::scan::{DataEntry, Part, Scan, Step, Tail, TransactionEntry};
use crate::{ChecksumMode, FileStorageError, checksums};

/// Bytes scanned between two reports of progress.
const PROGRESS_STEP_BYTES: u64 = 8 << 20;

/// Result of a recovery.
pub(crate) struct Recovered {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) magic: Magic,
    pub(crate) positions: Positions,
    pub(crate) end: u64,
    pub(crate) tids: Tids,
    /// The checksums beside the file, if they belong to this file.
    pub(crate) checksums: Option<Opened>,
    /// Places that do not match their checksums.
    pub(crate) damages: Vec<Damage>,
    /// Whether there is an index file that was not used.
    pub(crate) is_index_unused: bool,
}

pub(crate) fn recover(
    disk: &dyn Disk,
    options: &OpenOptions<'_>,
    file: Arc<dyn DiskFile>,
) -> Result<Recovered, FileStorageError> {
    let path = options.path.as_path();
    let length = file.length().map_err(|error| FileStorageError::io(path, "read", error))?;
    if !options.read_only && is_unbegun(path, file.as_ref(), length)? {
        lost_file::report(disk, path)?;
        start_file(disk, path, file.as_ref())?;
        return Ok(Recovered {
            file,
            magic: Magic::Fs30,
            positions: Positions::new(),
            end: MAGIC_BYTES,
            tids: Tids::NONE,
            checksums: None,
            damages: Vec::new(),
            is_index_unused: false,
        });
    }
    let magic = read_magic(path, file.as_ref())?;
    let mut checksums = open_checksums(disk, options, &file, length);
    let mut read = read_log(disk, options, &file, length, checksums.as_ref())?;
    if let Some(position) = read.other_at {
        warn_distrust(path, Distrust::OtherContents { position });
        checksums = None;
        read = read_log(disk, options, &file, length, None)?;
    }
    let ReadLog { positions, built, damages, is_index_unused, .. } = read;
    let Built { end, tids, .. } = built;
    let whole = whole_transactions(path, &file, end, length);
    if end < length && !options.read_only {
        let was_durable = checksums.as_ref().is_some_and(|opened| end < opened.durable_end());
        let broken = BrokenEnd { path, file: file.as_ref(), start: end, end: length };
        let kept = broken.set_aside(disk)?;
        broken.warn(&kept, was_durable, whole);
    } else {
        if whole > 0 {
            warn!(file = %path.display(), position = end, whole, "the last transactions are not \
                served: bytes of them were not on the disk yet when the system went down");
        }
        if let Some(opened) = &checksums {
            opened.warn_if_shortened(path, length);
        }
    }
    Ok(Recovered { file, magic, positions, end, tids, checksums, damages, is_index_unused })
}

/// Result of reading a log.
struct ReadLog {
    positions: Positions,
    built: Built,
    damages: Vec<Damage>,
    is_index_unused: bool,
    /// Position at which the log turned out not to be the one that the checksums describe. It must
    /// then be read again without them.
    other_at: Option<u64>,
}

/// Loads the index, and adds the transactions that it does not cover.
fn read_log(
    disk: &dyn Disk,
    options: &OpenOptions<'_>,
    file: &Arc<dyn DiskFile>,
    length: u64,
    checksums: Option<&Opened>,
) -> Result<ReadLog, FileStorageError> {
    let path = options.path.as_path();
    let found = index_snapshot::load(disk, path, file, length);
    let is_index_unused = matches!(found, Ok(Found::Unverified) | Err(_));
    let (mut positions, start, tids) = match found {
        Ok(Found::Usable(loaded)) => (loaded.positions, loaded.end, loaded.tids),
        Ok(Found::Nothing | Found::Unverified) => (Positions::new(), MAGIC_BYTES, Tids::NONE),
        Err(reason) => {
            warn!(file = %path.display(), %reason, "index not usable, building it anew");
            (Positions::new(), MAGIC_BYTES, Tids::NONE)
        }
    };
    let passage = checksums.map(|opened| Passage::new(opened, path, file, length));
    let torn_detector = TornTransactionDetector::find(checksums);
    let (damages, other_at) = (Vec::new(), None);
    let mut build = Build { path, file, length, passage, torn_detector, damages, other_at };
    let mut built = build.run(start, tids, &positions, options.progress)?;
    if let Some(start) = built.not_later {
        let tail = Tail { path, file, start, end: length, last_tid: built.tids.latest };
        if !build.is_durable(start) && tail.is_left_over()? {
            positions = Positions::new();
            build = Build { length: start, damages: Vec::new(), ..build };
            built = build.run(MAGIC_BYTES, Tids::NONE, &positions, options.progress)?;
        } else {
            warn_not_later(path, start);
        }
    }
    let Build { damages, other_at, .. } = build;
    Ok(ReadLog { positions, built, damages, is_index_unused, other_at })
}

fn open_checksums(
    disk: &dyn Disk,
    options: &OpenOptions<'_>,
    file: &Arc<dyn DiskFile>,
    length: u64,
) -> Option<Opened> {
    if options.checksums == ChecksumMode::Off {
        return None;
    }
    let mode = if options.read_only { OpenMode::Read } else { OpenMode::Write };
    let opened = checksums::open(disk, &options.path, mode, file, length);
    opened.unwrap_or_else(|distrust| {
        warn_distrust(&options.path, distrust);
        None
    })
}

fn warn_distrust(path: &Path, distrust: Distrust) {
    warn!(file = %path.display(), reason = %distrust,
        "the checksums beside the data file are not used; a server that writes it takes them anew");
}

/// Whether the file is empty, or a crash left its magic incomplete.
fn is_unbegun(path: &Path, file: &dyn DiskFile, length: u64) -> Result<bool, FileStorageError> {
    let magic = Magic::Fs30.bytes();
    let Some(begun) = magic.get(..length.try_into().unwrap_or(usize::MAX)) else {
        return Ok(false);
    };
    let mut bytes = [0; MAGIC_BYTES as usize];
    let bytes = &mut bytes[..begun.len()];
    file.read_exact_at(bytes, 0).map_err(|error| FileStorageError::io(path, "read", error))?;
    Ok(bytes == begun && begun != magic)
}

/// The transactions at the start of an end that look whole.
fn whole_transactions(path: &Path, file: &Arc<dyn DiskFile>, start: u64, end: u64) -> u64 {
    let mut scan = Scan::new(path, Arc::clone(file), end);
    let (mut position, mut count) = (start, 0);
    while let Ok(Step::Transaction(entry)) = scan.transaction(position) {
        (position, count) = (entry.next_position(), count + 1);
    }
    count
}

fn start_file(disk: &dyn Disk, path: &Path, file: &dyn DiskFile) -> Result<(), FileStorageError> {
    file.write_all_at(Magic::Fs30.bytes(), 0)
        .and_then(|()| file.sync())
        .and_then(|()| disk.sync_folder_of(path))
        .map_err(|error| FileStorageError::io(path, "write", error))
}

fn read_magic(path: &Path, file: &dyn DiskFile) -> Result<Magic, FileStorageError> {
    let mut bytes = [0; MAGIC_BYTES as usize];
    let known = match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Magic::parse(&bytes),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => None,
        Err(error) => return Err(FileStorageError::io(path, "read", error)),
    };
    known.ok_or_else(|| FileStorageError::NotFileStorage { path: path.to_owned() })
}

fn warn_not_later(path: &Path, position: u64) {
    warn!(file = %path.display(), position,
        "transactions that are not later than those before them begin here");
}

struct Built {
    end: u64,
    tids: Tids,
    /// Start of the transactions, up to the end, whose tids are not later than those before.
    not_later: Option<u64>,
}

/// Adds transactions to the index.
struct Build<'a> {
    path: &'a Path,
    file: &'a Arc<dyn DiskFile>,
    /// Length of the file.
    length: u64,
    passage: Option<Passage<'a>>,
    torn_detector: Option<TornTransactionDetector<'a>>,
    damages: Vec<Damage>,
    /// Position at which the log turned out not to be the one that the checksums describe.
    other_at: Option<u64>,
}

impl Build<'_> {
    /// Adds all transactions from `start` on to the index.
    fn run(
        &mut self,
        start: u64,
        mut tids: Tids,
        positions: &Positions,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Built, FileStorageError> {
        let Build { path, file, length, .. } = *self;
        let mut scan = Scan::new(path, Arc::clone(file), length);
        let (mut position, mut not_later, mut records) = (start, None, Vec::new());
        let mut report_at = start + PROGRESS_STEP_BYTES;
        let mut looked_again = None;
        loop {
            let found = match self.transaction(&mut scan, position, tids.latest) {
                Ok(Step::End) => break,
                Ok(Step::Transaction(entry)) => {
                    let read = self.read_records(&mut scan, &entry, positions, &mut records);
                    read.and_then(|()| self.is_torn(&mut scan, &entry))
                        .map(|is_torn| (!is_torn).then_some(entry))
                }
                Ok(Step::Unfinished) => Ok(None),
                Err(error) => Err(error),
            };
            let damage = match found {
                Ok(Some(entry)) => {
                    for (oid, position) in records.drain(..) {
                        positions.publish(oid, position);
                    }
                    if entry.tid() <= tids.latest {
                        not_later.get_or_insert(position);
                    } else if let Some(position) = not_later.take() {
                        warn_not_later(path, position);
                    }
                    tids.note(entry.tid());
                    position = entry.next_position();
                    if position >= report_at {
                        progress(position - start, length - start);
                        report_at = position + PROGRESS_STEP_BYTES;
                    }
                    continue;
                }
                Ok(None) => None,
                Err(damage @ FileStorageError::Corrupt { .. }) => Some(damage),
                Err(error) => return Err(error),
            };
            // The last batch of a crashed session may be torn, whatever follows it.
            if !self.torn_detector.as_ref().is_some_and(|torn| torn.may_be_torn(position)) {
                let last_tid = tids.latest;
                let tail = Tail { path, file, start: position, end: length, last_tid };
                let checked = tail.check(damage);
                if checked.is_err() && looked_again != Some(position) && self.is_whole(position) {
                    // A server has finished it meanwhile.
                    looked_again = Some(position);
                    scan = Scan::new(path, Arc::clone(file), length);
                    continue;
                }
                checked?;
            }
            break;
        }
        progress(position - start, length - start);
        Ok(Built { end: position, tids, not_later })
    }

    /// Whether a transaction at a position is whole by now.
    fn is_whole(&self, position: u64) -> bool {
        let mut scan = Scan::new(self.path, Arc::clone(self.file), self.length);
        matches!(scan.transaction(position), Ok(Step::Transaction(_)))
    }

    fn is_torn(
        &mut self,
        scan: &mut Scan<'_>,
        transaction: &TransactionEntry,
    ) -> Result<bool, FileStorageError> {
        let Some(torn_detector) = &self.torn_detector else { return Ok(false) };
        if !torn_detector.is_torn(self.file.as_ref(), scan, transaction)? {
            return Ok(false);
        }
        if torn_detector.is_followed_by_a_later_batch(scan, transaction) {
            // Another program has written what follows the covered part.
            self.torn_detector = None;
        }
        Ok(self.torn_detector.is_some())
    }

    fn is_durable(&mut self, position: u64) -> bool {
        let entry = self.passage.as_mut().and_then(|passage| passage.entry(position, Part::Frame));
        entry.is_some()
    }

    /// The transaction at a position. If it does not match its checksum: as it was when written.
    fn transaction(
        &mut self,
        scan: &mut Scan<'_>,
        position: u64,
        last_tid: Tid,
    ) -> Result<Step, FileStorageError> {
        let found = scan.transaction(position);
        let Some(passage) = &mut self.passage else { return found };
        let Some(frame) = passage.entry(position, Part::Frame) else { return found };
        if let Ok(Step::Transaction(entry)) = &found
            && scan.frame_sum(entry)? == frame.sum
        {
            return found;
        }
        if found.is_ok() && passage.is_of_another_log(position) {
            self.leave_checksums(position);
            return found;
        }
        let what = "a transaction that does not fit its checksum";
        let header = passage.transaction_header(&frame);
        let repaired = header.map(|header| TransactionEntry { position, header });
        let entry = match (repaired, found) {
            (Some(entry), _) if self.has_lost_its_end(scan, &entry, last_tid)? => {
                return Ok(Step::Unfinished);
            }
            (Some(entry), _) | (None, Ok(Step::Transaction(entry))) => entry,
            (None, Ok(_)) => return Err(FileStorageError::corrupt(self.path, position, what)),
            (None, Err(error)) => return Err(error),
        };
        let (kind, tid) = (DamageKind::Checksum, Some(entry.tid()));
        self.damages.push(Damage { kind, position, what: what.to_owned(), oid: None, tid });
        Ok(Step::Transaction(entry))
    }

    fn leave_checksums(&mut self, position: u64) {
        self.passage = None;
        self.other_at.get_or_insert(position);
    }

    /// Whether only the last bytes of the file's last transaction are missing, while its header is
    /// as written.
    ///
    /// More than its second length must be wrong. A single wrong bit there is damage, and the
    /// transaction is kept.
    fn has_lost_its_end(
        &mut self,
        scan: &mut Scan<'_>,
        entry: &TransactionEntry,
        last_tid: Tid,
    ) -> Result<bool, FileStorageError> {
        let wrong_bits = (scan.length_copy(entry)? ^ entry.header.length).count_ones();
        if wrong_bits == 0 {
            return Ok(false);
        }
        let Build { path, file, length, .. } = *self;
        let tail = Tail { path, file, start: entry.position, end: length, last_tid };
        if tail.is_followed()? {
            return Ok(false);
        }
        Ok(wrong_bits > 1 || tail.is_zeroed()? && !self.records_fit(scan, entry)?)
    }

    /// Whether every record of a transaction matches its checksum.
    fn records_fit(
        &mut self,
        scan: &mut Scan<'_>,
        entry: &TransactionEntry,
    ) -> Result<bool, FileStorageError> {
        let Some(passage) = &mut self.passage else { return Ok(false) };
        let mut position = entry.records_start();
        while position < entry.records_end() {
            let Ok(record) = scan.record(position, entry) else { return Ok(false) };
            let sealed = passage.entry(position, Part::Record).map(|sealed| sealed.sum);
            if sealed != Some(scan.record_sum(&record)?) {
                return Ok(false);
            }
            position += record.header.record_bytes();
        }
        Ok(true)
    }

    /// Gives the records of a transaction that become current, once the whole transaction was read
    /// without an error.
    ///
    /// A record names the previous record of its object; only a pack omits that. If the previous
    /// record is of another object, the oid is wrong, and two objects would be mixed up.
    fn read_records(
        &mut self,
        scan: &mut Scan<'_>,
        transaction: &TransactionEntry,
        positions: &Positions,
        records: &mut Vec<(Oid, u64)>,
    ) -> Result<(), FileStorageError> {
        records.clear();
        if transaction.status() == Some(TransactionStatus::Undone) {
            return Ok(());
        }
        let packed = transaction.status() == Some(TransactionStatus::Packed);
        let mut position = transaction.records_start();
        while position < transaction.records_end() {
            let record = self.record(scan, position, transaction)?;
            position += record.header.record_bytes();
            let DataHeader { oid, previous, .. } = record.header;
            let current = positions.position(oid);
            let continues = match previous {
                0 => packed || current.is_none(),
                _ => current == Some(previous) || is_of(self.file.as_ref(), previous, oid),
            };
            if !continues {
                let what = format!("a record of object {oid} that does not continue its history");
                return Err(FileStorageError::corrupt(self.path, record.position, what));
            }
            records.push((oid, record.position));
        }
        Ok(())
    }

    /// The record at a position. If it does not match its checksum: with its header as written.
    fn record(
        &mut self,
        scan: &mut Scan<'_>,
        position: u64,
        transaction: &TransactionEntry,
    ) -> Result<DataEntry, FileStorageError> {
        let found = scan.record(position, transaction);
        let Some(passage) = &mut self.passage else { return found };
        let Some(sealed) = passage.entry(position, Part::Record) else { return found };
        if let Ok(record) = &found
            && scan.record_sum(record)? == sealed.sum
        {
            return found;
        }
        if found.is_ok() && passage.is_of_another_log(position) {
            self.leave_checksums(position);
            return found;
        }
        let repaired = passage.data_header(&sealed, transaction.records_end());
        let record = repaired.map(|header| DataEntry { position, header }).map_or(found, Ok)?;
        let what = "a record that does not fit its checksum".to_owned();
        let (oid, tid) = (Some(record.header.oid), Some(transaction.tid()));
        self.damages.push(Damage { kind: DamageKind::Checksum, position, what, oid, tid });
        Ok(record)
    }
}

/// Whether the record at a position belongs to this object.
fn is_of(file: &dyn DiskFile, position: u64, oid: Oid) -> bool {
    let mut header = [0; DATA_HEADER_BYTES];
    file.read_exact_at(&mut header, position).is_ok() && DataHeader::parse(&header).oid == oid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Crafted, file_of};

    #[test]
    fn the_transactions_that_look_whole_are_counted_up_to_the_first_that_does_not() {
        let mut data = Crafted::new();
        let first = data.add(1, &[(1, b"one")]);
        let second = data.add(2, &[(2, b"two")]);
        let third = data.add(3, &[(3, b"three")]);
        let end = data.end();
        let count = |data: &Crafted, start, end| {
            whole_transactions(Crafted::path(), &data.file(), start, end)
        };
        for (start, expected) in [(first, 3), (second, 2), (third, 1), (end, 0)] {
            assert_eq!(count(&data, start, end), expected);
        }
        assert_eq!(count(&data, first, end - 1), 2);
        let damaged = data.with_number(third - 8, 0);
        assert_eq!(count(&damaged, first, end), 1);
    }

    #[test]
    fn a_file_is_unbegun_if_it_has_less_than_the_magic() {
        let unbegun = |bytes: &[u8]| {
            let file = file_of(bytes);
            is_unbegun(Crafted::path(), file.as_ref(), bytes.len() as u64).unwrap()
        };
        for bytes in [&b""[..], b"F", b"FS", b"FS3"] {
            assert!(unbegun(bytes), "{bytes:?}");
        }
        for bytes in [&b"FS30"[..], b"FS21", b"FS2", b"G", b"FS30x", b"\0"] {
            assert!(!unbegun(bytes), "{bytes:?}");
        }
    }

    #[test]
    fn a_record_is_of_the_object_that_it_names() {
        let mut data = Crafted::new();
        let record = data.add(1, &[(7, b"data")]) + 23;
        let is_of = |position, oid| is_of(data.file().as_ref(), position, Oid(oid));
        assert!(is_of(record, 7));
        assert!(!is_of(record, 8) && !is_of(record + 1, 7) && !is_of(data.end(), 0));
    }
}
