//! Saves the index beside the data file, and decides whether to use a saved one.
//!
//! `Data.fs.index` is ZODB's own format. It has no checksum and does not name its data file. So a
//! small file of ours, `.index.crc32c` ([`IndexLine`]), verifies an index that we wrote. It holds a
//! checksum and the tid of the last transaction covered, which no other history has at that
//! position. Loads from an index that fits its checksum give the same answers as loads from a
//! rebuilt index.
//!
//! An index without a checksum (written by stock ZODB) is not used for a file of up to
//! [`REBUILT_BYTES_MAX`], which is quickly read. For a larger file it must agree with the last
//! transactions, and the positions it names must hold records of the right objects. One error is
//! left: an entry may name an older record if all newer ones are further back than those
//! transactions. Stock ZODB, which checks five transactions, takes that risk at every start. Here
//! it ends when we first save an index.
//!
//! An unused index is replaced as soon as the file has been read. Otherwise, after a kill, it could
//! stay beside a file that grows to the length that the index states.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use zodium_disk::with_suffix;
use zodium_disk::{Disk, DiskFile, FileStream, OpenMode};
use zodium_types::{Oid, TransactionStatus};

use super::index_file;
use super::index_line::{IndexLine, Order, Sum};
use crate::FileStorageError;
use crate::format::{DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES};
use crate::read::{LogFile, Positions, Tids};
use crate::scan::Scan;

/// Longest file that is read instead of using an index without a checksum.
const REBUILT_BYTES_MAX: u64 = 64 << 20;
/// Entries of an index without a checksum that are compared with the data. Each is a read of the
/// device, if the file is not in memory. So many almost certainly notice that one entry in a
/// thousand is wrong.
const CHECKED_ENTRIES_MAX: usize = 10_000;
/// Transactions at the end that an index without a checksum must agree with.
const CHECKED_TRANSACTIONS: usize = 1_000;
/// Entries that are compared with the data when an index fits its checksum.
const SAMPLED_ENTRIES: usize = 64;
/// Bytes read at once for one of the last transactions.
const LOOK_BYTES: usize = 4 << 10;

/// An index that agrees with the data.
pub(crate) struct Loaded {
    pub(crate) positions: Positions,
    /// End of the part of the data file that the index covers.
    pub(crate) end: u64,
    /// What is known of the tids before `end`.
    pub(crate) tids: Tids,
}

/// Result of a search for an index beside a data file.
pub(crate) enum Found {
    /// There is no index.
    Nothing,
    /// An index of a small file without a checksum, or that does not tell the order of the tids:
    /// the file is read instead.
    Unverified,
    Usable(Box<Loaded>),
}

/// Loads the index of a data file of `length` bytes; an error explains why it cannot be used.
pub(crate) fn load(
    disk: &dyn Disk,
    path: &Path,
    data: &Arc<dyn DiskFile>,
    length: u64,
) -> Result<Found, String> {
    let index_path = with_suffix(path, ".index");
    let file = match disk.open(&index_path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(format!("{}: {error}", index_path.display())),
    };
    let line = IndexLine::read(disk, path);
    if line.is_none_or(|line| line.order.is_none()) && length <= REBUILT_BYTES_MAX {
        return Ok(Found::Unverified);
    }
    let mut input = Summed::new(FileStream::new(file.as_ref()));
    let positions = Positions::new();
    let index_bytes = file.length().unwrap_or(0);
    let few_suffice = line.is_some();
    let mut samples =
        Samples::of(index_bytes, if few_suffice { SAMPLED_ENTRIES } else { CHECKED_ENTRIES_MAX });
    let end = index_file::read(&mut input, |oid, position| {
        positions.publish(oid, position);
        samples.pass(oid, position);
    })
    .map_err(|error| error.to_string())?;
    if end < MAGIC_BYTES || end > length {
        return Err(format!("it covers {end} bytes of a file of {length}"));
    }
    let line = line.filter(|line| line.sum == input.sum);
    let is_verified = line.is_some();
    if !is_verified && length <= REBUILT_BYTES_MAX {
        return Err("it is not the one that its checksum is of".to_owned());
    }
    if few_suffice && !is_verified {
        samples = Samples::of(index_bytes, CHECKED_ENTRIES_MAX);
        positions.iter().for_each(|(oid, position)| samples.pass(oid, position));
    }
    let transactions = if is_verified { 1 } else { CHECKED_TRANSACTIONS };
    let mut tids = check_last_transactions(path, data, end, &positions, transactions)?;
    if let Some(line) = line {
        if line.last_tid != tids.last {
            return Err("it is that of another file".to_owned());
        }
        tids = line.tids().unwrap_or(tids);
    }
    samples.check(data.as_ref(), end)?;
    Ok(Found::Usable(Box::new(Loaded { positions, end, tids })))
}

/// Writes the index, under a temporary name first, and its checksum. Commits may go on: the index
/// covers the file up to its present end.
pub(crate) fn save(disk: &dyn Disk, log: &LogFile) -> Result<(), FileStorageError> {
    let index_path = with_suffix(&log.path, ".index");
    let temporary = with_suffix(&log.path, ".index.index_tmp");
    let failed = |error| FileStorageError::io(&index_path, "write", error);
    let (end, tids) = log.settled();
    let file = disk.open(&temporary, OpenMode::Truncate).map_err(failed)?;
    let mut output = Summed::new(FileStream::new(file.as_ref()));
    write_to(log, end, &mut output, failed)?;
    let sum = output.sum;
    file.sync().map_err(failed)?;
    disk.rename(&temporary, &index_path).map_err(failed)?;
    let order = Order::of(tids);
    if order.is_none() && tids.go_back {
        // Which transaction is the latest is unknown, and that it need not be the last is not.
        return Ok(());
    }
    // Written last: without a checksum, or with an old one, the index is merely not trusted.
    IndexLine { sum, last_tid: tids.last, order }.write(disk, &log.path).map_err(failed)
}

/// Writes the index of the part of the file before `end`, in ZODB's format.
pub(crate) fn write_to(
    log: &LogFile,
    end: u64,
    output: &mut dyn Write,
    failed: impl FnOnce(io::Error) -> FileStorageError,
) -> Result<(), FileStorageError> {
    let mut damage = None;
    let entries = log.positions.iter().filter_map(|(oid, position)| {
        let position = log.position_before(oid, position, end);
        let position = position.map_err(|error| damage = Some(error)).unwrap_or(0);
        (position != 0).then_some((oid, position))
    });
    index_file::write(output, end, entries).map_err(failed)?;
    damage.map_or(Ok(()), Err)
}

/// Checks the last transactions that the index covers, and returns what they tell of the tids. They
/// must end at its `end`, and the index must name the current records after them.
fn check_last_transactions(
    path: &Path,
    data: &Arc<dyn DiskFile>,
    end: u64,
    positions: &Positions,
    count: usize,
) -> Result<Tids, String> {
    let mut scan = Scan::with_window(path, Arc::clone(data), end, LOOK_BYTES);
    let mut passed = Vec::new();
    let mut latest = rustc_hash::FxHashMap::default();
    let mut before = end;
    for _ in 0..count {
        let found = scan.transaction_before(before).map_err(misfit)?;
        let Some(transaction) = found else { break };
        passed.push(transaction.tid());
        let mut written = rustc_hash::FxHashMap::default();
        scan.each_record(&transaction, |record| {
            written.insert(record.header.oid, record.position);
        })
        .map_err(misfit)?;
        if transaction.status() != Some(TransactionStatus::Undone) {
            for (oid, position) in written {
                latest.entry(oid).or_insert(position);
            }
        }
        before = transaction.position;
    }
    if let Some((oid, _)) = latest.iter().find(|(oid, at)| positions.position(**oid) != Some(**at))
    {
        return Err(format!("it does not know the last record of {oid}"));
    }
    if before <= MAGIC_BYTES && latest.len() as u64 != positions.len() {
        return Err("it names objects that are not in the file".to_owned());
    }
    let mut tids = Tids { are_all_known: before <= MAGIC_BYTES, ..Tids::NONE };
    passed.into_iter().rev().for_each(|tid| tids.note(tid));
    Ok(tids)
}

/// Explains why an index does not match the data file where the index ends. Most often the index is
/// of another file, so the message does not mention damage.
fn misfit(error: FileStorageError) -> String {
    match error {
        FileStorageError::Corrupt { position, .. } => {
            format!(
                "the data file has no transactions at position {position} that end where it does"
            )
        }
        other => other.to_string(),
    }
}

/// Evenly spaced entries of an index. They are taken while it is read, because a second pass over
/// all entries takes time. Only an index that does not fit its checksum needs one.
struct Samples {
    taken: Vec<(Oid, u64)>,
    /// Distance from one sample to the next, in entries.
    step: usize,
    /// Entries to skip before the next sample.
    left_out: usize,
}

impl Samples {
    /// For about `limit` samples of an index file of `length` bytes.
    fn of(length: u64, limit: usize) -> Samples {
        let entries = usize::try_from(length).unwrap_or(usize::MAX) / index_file::ENTRY_BYTES;
        let step = entries / limit + 1;
        // Allocated at once: buffers it outgrew would stay between the pages of positions for good.
        Samples { taken: Vec::with_capacity(entries / step + 1), step, left_out: 0 }
    }

    fn pass(&mut self, oid: Oid, position: u64) {
        match self.left_out.checked_sub(1) {
            Some(left_out) => self.left_out = left_out,
            None => {
                self.taken.push((oid, position));
                self.left_out = self.step - 1;
            }
        }
    }

    /// Checks that the samples point to records of their objects.
    fn check(&self, data: &dyn DiskFile, end: u64) -> Result<(), String> {
        for &(oid, position) in &self.taken {
            if !record_is_there(data, end, oid, position) {
                return Err(format!("object {oid} is not at position {position}"));
            }
        }
        Ok(())
    }
}

fn record_is_there(data: &dyn DiskFile, end: u64, oid: Oid, position: u64) -> bool {
    let mut bytes = [0; DATA_HEADER_BYTES];
    if data.read_exact_at(&mut bytes, position).is_err() {
        return false;
    }
    let header = DataHeader::parse(&bytes);
    let fits = position.checked_add(header.record_bytes()).is_some_and(|stop| stop <= end);
    header.oid == oid && fits && header.previous < position && header.transaction < position
}

/// A stream that computes the checksum of the bytes that pass through it.
struct Summed<S> {
    stream: S,
    sum: Sum,
}

impl<S> Summed<S> {
    fn new(stream: S) -> Summed<S> {
        Summed { stream, sum: Sum::default() }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.sum.crc32c = crc32c::crc32c_append(self.sum.crc32c, bytes);
        self.sum.length += bytes.len() as u64;
    }
}

impl<S: Read> Read for Summed<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.add(&buffer[..count]);
        Ok(count)
    }
}

impl<S: Write> Write for Summed<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.stream.write(bytes)?;
        self.add(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests;
