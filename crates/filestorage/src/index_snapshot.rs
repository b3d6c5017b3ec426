//! Saving the index beside the data file, and deciding whether a saved one can be believed.
//!
//! `Data.fs.index` is ZODB's own and has no checksum, so a small file of ours, `.index.crc32c`,
//! holds that of the index we wrote. An index that it does not vouch for (stock ZODB wrote it,
//! or it is damaged) must instead show the right object at the positions it names.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use zodium_disk::{Disk, DiskFile, OpenMode};
use zodium_types::{Oid, Tid};

use crate::format::{DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES};
use crate::log::LogFile;
use crate::positions::Positions;
use crate::scan::Scan;
use crate::storage::with_suffix;
use crate::{StorageError, index_file};

/// Entries of an index without checksum that are looked up in the data.
const CHECKED_ENTRIES_MAX: u64 = 100_000;
/// Entries of an index with a good checksum that are looked up all the same, since it may be that
/// of another file.
const SAMPLED_ENTRIES: u64 = 64;
/// Window for a look at the last transaction.
const LOOK_BYTES: usize = 64 << 10;

/// An index that agrees with the data.
pub(crate) struct Loaded {
    pub(crate) positions: Positions,
    /// It covers the data file up to here.
    pub(crate) end: u64,
    /// The last transaction before `end`.
    pub(crate) last_tid: Tid,
}

/// Loads the index of a data file of `length` bytes; `None` when there is none, and the reason
/// when it cannot be used.
pub(crate) fn load(
    disk: &dyn Disk,
    path: &Path,
    data: &Arc<dyn DiskFile>,
    length: u64,
) -> Result<Option<Loaded>, String> {
    let index_path = with_suffix(path, ".index");
    let file = match disk.open(&index_path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", index_path.display())),
    };
    let mut input = Summed::new(FileStream { file: file.as_ref(), position: 0 });
    let positions = Positions::new();
    let end = index_file::read(&mut input, |oid, position| {
        positions.publish(oid, position);
    })
    .map_err(|error| error.to_string())?;
    if end < MAGIC_BYTES || end > length {
        return Err(format!("it covers {end} bytes of a file of {length}"));
    }
    let vouched = read_sum(disk, path).is_some_and(|sum| sum == input.sum);
    let last_tid = check_last_transaction(path, data, end, &positions)?;
    let limit = if vouched { SAMPLED_ENTRIES } else { CHECKED_ENTRIES_MAX };
    check_entries(data.as_ref(), end, &positions, limit)?;
    Ok(Some(Loaded { positions, end, last_tid }))
}

/// Writes the index and its checksum, each under a temporary name first. Commits may go on: the
/// index covers the file up to where it ends now.
pub(crate) fn save(disk: &dyn Disk, log: &LogFile) -> Result<(), StorageError> {
    let index_path = with_suffix(&log.path, ".index");
    let temporary = with_suffix(&log.path, ".index.index_tmp");
    let failed = |error| StorageError::io(&index_path, "write", error);
    let file = disk.open(&temporary, OpenMode::Truncate).map_err(failed)?;
    let mut output = Summed::new(FileStream { file: file.as_ref(), position: 0 });
    let end = log.end();
    let mut damage = None;
    let entries = log.positions.iter().filter_map(|(oid, position)| {
        let position = log.position_before(oid, position, end);
        let position = position.map_err(|error| damage = Some(error)).unwrap_or(0);
        (position != 0).then_some((oid, position))
    });
    index_file::write(&mut output, end, entries).map_err(failed)?;
    let sum = output.sum;
    if let Some(error) = damage {
        return Err(error);
    }
    file.sync().map_err(failed)?;
    disk.rename(&temporary, &index_path).map_err(failed)?;
    // Last: without a sum, or with an old one, the index is merely checked harder when loaded.
    write_sum(disk, &log.path, sum).map_err(failed)
}

/// The last transaction that the index covers must end where it says, and the index must name
/// its records.
fn check_last_transaction(
    path: &Path,
    data: &Arc<dyn DiskFile>,
    end: u64,
    positions: &Positions,
) -> Result<Tid, String> {
    let mut scan = Scan::with_window(path, Arc::clone(data), end, LOOK_BYTES);
    let last = scan.transaction_before(end).map_err(|error| error.to_string())?;
    let Some(last) = last else {
        return if positions.is_empty() {
            Ok(Tid::ZERO)
        } else {
            Err("it names objects of an empty file".to_owned())
        };
    };
    let mut latest = rustc_hash::FxHashMap::default();
    scan.each_record(&last, |record| {
        latest.insert(record.header.oid, record.position);
    })
    .map_err(|error| error.to_string())?;
    let undone = last.status() == Some(zodium_types::TransactionStatus::Undone);
    let wrong = latest.iter().find(|(oid, at)| positions.position(**oid) != Some(**at));
    match wrong {
        Some((oid, _)) if !undone => Err(format!("it does not know the last record of {oid}")),
        _ => Ok(last.tid()),
    }
}

/// Looks at the records that evenly spaced entries point to.
fn check_entries(
    data: &dyn DiskFile,
    end: u64,
    positions: &Positions,
    limit: u64,
) -> Result<(), String> {
    let step = usize::try_from(positions.len() / limit + 1).unwrap_or(usize::MAX);
    for (oid, position) in positions.iter().step_by(step) {
        if !record_is_there(data, end, oid, position) {
            return Err(format!("object {oid} is not at position {position}"));
        }
    }
    Ok(())
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

/// Checksum and length of an index file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    crc32c: u32,
    length: u64,
}

fn read_sum(disk: &dyn Disk, path: &Path) -> Option<Sum> {
    let file = disk.open(&with_suffix(path, ".index.crc32c"), OpenMode::Read).ok()?;
    let mut text = String::new();
    FileStream { file: file.as_ref(), position: 0 }.take(64).read_to_string(&mut text).ok()?;
    let (crc32c, length) = text.trim_end().split_once(' ')?;
    Some(Sum { crc32c: u32::from_str_radix(crc32c, 16).ok()?, length: length.parse().ok()? })
}

fn write_sum(disk: &dyn Disk, path: &Path, sum: Sum) -> io::Result<()> {
    let file = disk.open(&with_suffix(path, ".index.crc32c"), OpenMode::Truncate)?;
    file.write_all_at(format!("{:08x} {}\n", sum.crc32c, sum.length).as_bytes(), 0)
}

/// A stream that sums what goes through it.
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

/// A file of the disk seam as a stream.
struct FileStream<'a> {
    file: &'a dyn DiskFile,
    position: u64,
}

impl Read for FileStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for FileStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.position)?;
        self.position += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
