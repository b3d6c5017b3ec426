//! Opening a side file that is there: what of it can be believed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tracing::{info, warn};
use zodium_disk::{Disk, DiskFile, OpenMode};

use super::belonging::entries_that_belong;
use super::entry::{ENTRY_BYTES, Entry, Part};
use super::header::{HEADER_BYTES, Header, Session};
use super::repair;
use super::side_file::SideFile;
use super::sums::sum_at;
use crate::format::{DataHeader, POINTER_BYTES, TransactionHeader};
use crate::storage::with_suffix;

/// Bytes of entries read at once.
const READ_BYTES: usize = 64 << 10;

/// A side file with what the last session left in it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) side: Arc<SideFile>,
    pub(super) header: Header,
    /// Entries written before the bytes they are of, by the last batches of that session, and
    /// others between them.
    promises: Vec<Entry>,
    /// The log was on stable storage up to here, and may be shorter now; 0 for another log.
    durable_end: u64,
    /// Nothing shows that the log is another one than they were written for.
    is_of_this_log: bool,
}

/// Opens the side file of a data file that has `length` bytes; `None` when there is none that can
/// be used.
pub(crate) fn open(
    disk: &dyn Disk,
    path: &Path,
    mode: OpenMode,
    data: &Arc<dyn DiskFile>,
    length: u64,
) -> Option<Opened> {
    let side_path = with_suffix(path, SUFFIX);
    let unusable = |reason: &dyn std::fmt::Display| {
        warn!(file = %side_path.display(), %reason, "checksums not usable");
    };
    let file = match disk.open(&side_path, mode) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            unusable(&error);
            return None;
        }
    };
    let Some(header) = read_header(file.as_ref()) else {
        unusable(&"it does not begin as it must");
        return None;
    };
    let mut opened = Opened {
        side: Arc::new(SideFile::new(&side_path, file, &header)),
        header,
        promises: Vec::new(),
        durable_end: 0,
        is_of_this_log: true,
    };
    opened.count_entries(data.as_ref(), length);
    // While it is served the log may have grown since it was measured.
    let length = data.length().unwrap_or(length).max(length);
    opened.durable_end = opened.side.end();
    opened.forget_what_is_cut_off(length);
    let side = &opened.side;
    let count = entries_that_belong(side, path, data, length, side.count());
    if let Some(cut) = side.entry(count).filter(|_| count < side.count()) {
        info!(file = %side_path.display(), position = cut.position,
            "the checksums from this position on are of another file, and are made anew");
        side.set(count, cut.position);
        opened.is_of_this_log = false;
        opened.durable_end = 0;
    }
    Some(opened)
}

/// `Data.fs` + this is the side file.
pub(crate) const SUFFIX: &str = ".checksums";

fn read_header(file: &dyn DiskFile) -> Option<Header> {
    let mut bytes = [0; 64];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Header::parse(&bytes)
}

impl Opened {
    /// Who had the log open for writing last.
    pub(crate) fn session(&self) -> Session {
        self.header.session
    }

    /// Whether the log is, as far as can be seen, the one that they were written for.
    pub(crate) fn is_of_this_log(&self) -> bool {
        self.is_of_this_log
    }

    /// Where the log ended when its checksums were written, all of it on stable storage; 0 when
    /// they are of another log.
    pub(crate) fn durable_end(&self) -> u64 {
        self.durable_end
    }

    /// Logs that a data file of `length` bytes has lost transactions, if that is so.
    pub(crate) fn warn_if_shortened(&self, path: &Path, length: u64) {
        if self.durable_end > length {
            warn!(file = %path.display(), bytes = length, were_durable = self.durable_end,
                "the data file is shorter than what was on stable storage. Unless an older one was \
                 put back, transactions are lost: keep the file and look for a newer copy");
        }
    }

    /// The entries from the first on that was written before the bytes it is of, ascending.
    pub(crate) fn announced(&self) -> &[Entry] {
        &self.promises
    }
}

impl Opened {
    /// Finds out how many entries there are, beyond those that were synced.
    fn count_entries(&mut self, data: &dyn DiskFile, length: u64) {
        let there = self.side.file.length().unwrap_or(0).saturating_sub(HEADER_BYTES);
        let there = there / ENTRY_BYTES as u64;
        let synced = self.header.count.min(there);
        if synced < self.header.count {
            // It was cut: what the last entries cover has to be found out.
            self.header.count = synced;
            self.header.end = 0;
        }
        let mut last_frame = None;
        let mut count = synced;
        let mut last_position = None;
        while count < there && !self.header.session.is_closed {
            let Some(entries) = self.read(count, there) else { break };
            for entry in &entries {
                if last_position >= Some(entry.position) {
                    break;
                }
                last_position = Some(entry.position);
                match (entry.is_promise, entry.part) {
                    (true, _) => self.promises.push(*entry),
                    // Those that replace what was promised may have arrived in part.
                    (false, _) if !self.promises.is_empty() => self.promises.push(*entry),
                    (false, part) => {
                        count += 1;
                        last_frame = if part == Part::Frame { Some(*entry) } else { last_frame };
                    }
                }
            }
            if entries.len() * ENTRY_BYTES < READ_BYTES || !self.promises.is_empty() {
                break;
            }
        }
        let end = match (last_frame, self.header.end) {
            (None, 0) => self.end_by_entries(data, length, count),
            (None, end) => Some((count, end)),
            (Some(frame), _) => self.end_of(data, length, &frame, count),
        };
        let (count, end) = end.unwrap_or((0, 0));
        self.side.set(count, end);
    }

    /// The entries from a number on, up to the first that is none.
    fn read(&self, number: u64, there: u64) -> Option<Vec<Entry>> {
        let count = (there - number).min((READ_BYTES / ENTRY_BYTES) as u64) as usize;
        let mut bytes = vec![0; count * ENTRY_BYTES];
        self.side.file.read_exact_at(&mut bytes, Header::entry_offset(number)).ok()?;
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let entries = entries.iter().map_while(|bytes| Entry::parse(bytes, self.side.salt));
        Some(entries.collect())
    }

    /// The end of what is covered when only the entries tell.
    fn end_by_entries(&self, data: &dyn DiskFile, length: u64, count: u64) -> Option<(u64, u64)> {
        let frame = (0..count)
            .rev()
            .find_map(|number| self.side.entry(number).filter(|entry| entry.part == Part::Frame))?;
        self.end_of(data, length, &frame, count)
    }

    /// The end of the last transaction that is covered. It may lie beyond that of the file.
    fn end_of(
        &self,
        data: &dyn DiskFile,
        length: u64,
        frame: &Entry,
        count: u64,
    ) -> Option<(u64, u64)> {
        if let Some(header) = repair::transaction_header(data, frame, length) {
            return Some((count, frame.position + header.length + POINTER_BYTES));
        }
        // Damaged or cut off. Unless the last of its records, or its own header as it is, tells
        // more, it reaches up to the end of the file.
        let last = self.side.entry(count.checked_sub(1)?).filter(|last| last.part == Part::Record);
        let record_end = last.and_then(|last| {
            let header = read_data_header(data, last.position)?;
            let fits = sum_at(data, last.position, length, Part::Record) == Some(last.sum);
            fits.then(|| last.position + header.record_bytes() + POINTER_BYTES)
        });
        let header_end = read_transaction_header(data, frame.position)
            .and_then(|header| frame.position.checked_add(header.length)?.checked_add(8))
            .filter(|end| *end > length);
        // Where it began is behind it all the same, though the file may end before.
        let end = record_end.or(header_end).unwrap_or(length);
        Some((count, end.max(frame.position + 1)))
    }

    /// Leaves out what the log has lost: somebody has put a shorter one there.
    fn forget_what_is_cut_off(&mut self, length: u64) {
        let side = &self.side;
        if side.end() <= length {
            return;
        }
        self.is_of_this_log = false;
        let mut count = side.number_at(length);
        let next = side.entry(count).filter(|_| count < side.count());
        let mut end = length;
        if next.is_none_or(|next| next.position != length) {
            // The file ends within a transaction.
            let frame = (0..count).rev().find_map(|number| {
                let entry = side.entry(number).filter(|entry| entry.part == Part::Frame)?;
                Some((number, entry.position))
            });
            (count, end) = frame.unwrap_or((0, 0));
        }
        side.set(count, end);
    }
}

fn read_transaction_header(data: &dyn DiskFile, position: u64) -> Option<TransactionHeader> {
    let mut bytes = [0; crate::format::TRANSACTION_HEADER_BYTES];
    data.read_exact_at(&mut bytes, position).ok()?;
    Some(TransactionHeader::parse(&bytes))
}

fn read_data_header(data: &dyn DiskFile, position: u64) -> Option<DataHeader> {
    let mut bytes = [0; crate::format::DATA_HEADER_BYTES];
    data.read_exact_at(&mut bytes, position).ok()?;
    Some(DataHeader::parse(&bytes))
}
