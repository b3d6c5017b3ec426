//! Opens a side file, and decides whether it can be trusted.
//!
//! **Invariant.** Checksums are trusted only if no other program has written or replaced the file
//! since the session that wrote them. All of this must hold:
//! - the lock file names that session: other programs that open the file for writing cut its name
//!   off ([`LastWriter`]);
//! - the data file has the same inode;
//! - it is at least as long as they cover, and as it was when they were synced; or it ends within
//!   a transaction that they cover, which no older copy does;
//! - no transaction follows behind the end at an orderly close;
//! - its transactions are those that they were computed from ([`ChecksummedLog`]).
//!
//! A wrong bit anywhere changes none of that, so it is detected.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tracing::warn;
use zodium_disk::with_suffix;
use zodium_disk::{Disk, DiskFile, OpenMode};

use super::checksummed_log::ChecksummedLog;
use super::distrust::Distrust;
use super::entry::{ENTRY_BYTES, Entry};
use super::header::{HEADER_BYTES, Header, READ_BYTES as HEADER_READ_BYTES, Session};
use super::last_writer::LastWriter;
use super::side_file::SideFile;
use super::sums::sum_at;
use super::{header, last_writer, repair};
use crate::format::{DataHeader, MAGIC_BYTES, POINTER_BYTES, TransactionHeader};
use crate::scan::{Part, Walk};

/// Bytes of entries read at once.
const READ_BYTES: usize = 64 << 10;

/// A trusted side file, and what the last session left in it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) side: Arc<SideFile>,
    pub(super) header: Header,
    /// The marker in the lock file.
    last_writer: LastWriter,
    /// The announcement: entries written before their bytes, by the last batches of that session,
    /// and the entries between them.
    promises: Vec<Entry>,
    /// The log was durable up to here when the entries were written.
    durable_end: u64,
    /// The last start of the system.
    pub(super) boot: Option<u64>,
}

/// Opens the side file of a data file of `length` bytes; `None` if there is none.
pub(crate) fn open(
    disk: &dyn Disk,
    path: &Path,
    mode: OpenMode,
    data: &Arc<dyn DiskFile>,
    length: u64,
) -> Result<Option<Opened>, Distrust> {
    // Before the header: a session that begins meanwhile names its predecessor there.
    let last_writer = last_writer::read(disk, path);
    let side_path = with_suffix(path, SUFFIX);
    let file = match disk.open(&side_path, mode) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(_) => return Err(Distrust::Unreadable),
    };
    let header = read_header(file.as_ref())?;
    let is_named = |last_writer: &LastWriter| {
        [header.session.nonce, header.session.before].contains(&last_writer.nonce)
    };
    let last_writer = last_writer.ok().flatten().filter(is_named).ok_or(Distrust::OtherWriter)?;
    let status = data.status().map_err(|_| Distrust::Unreadable)?;
    if status.identity.inode != header.log.inode {
        return Err(Distrust::OtherFile);
    }
    let side = SideFile::new(&side_path, file, header.salt, (header.count, header.end));
    let side = Arc::new(side);
    let (promises, durable_end, boot) = (Vec::new(), 0, disk.boot());
    let mut opened = Opened { side, header, last_writer, promises, durable_end, boot };
    opened.count_entries(data.as_ref(), length)?;
    // A server may have appended to the log since it was measured.
    let length = data.length().unwrap_or(status.length).max(length);
    opened.check_length(data.as_ref(), length)?;
    let was = header.log.length;
    let next = || Walk::starting_at(path, data, length, was).step();
    if header.session.is_closed && length > was && next().is_some_and(|piece| piece.is_whole()) {
        return Err(Distrust::OtherLength { was, is: length });
    }
    let is_modified =
        header.session.is_closed && ![0, status.modified].contains(&header.log.modified);
    let checksummed = ChecksummedLog { side: &opened.side, path, data, length };
    match checksummed.contradiction(is_modified) {
        Some(position) => Err(Distrust::OtherContents { position }),
        None => Ok(Some(opened)),
    }
}

/// Suffix of the side file.
pub(crate) const SUFFIX: &str = ".checksums";
/// Suffix of a side file that a later version of the program wrote, which is not used.
const LATER_SUFFIX: &str = ".later";

/// Whether there are checksums of transactions beside a data file, whatever file that was.
pub(crate) fn are_of_transactions(disk: &dyn Disk, path: &Path) -> bool {
    let status = disk.status(&with_suffix(path, SUFFIX)).ok().flatten();
    status.is_some_and(|status| status.length > HEADER_BYTES)
}

fn read_header(file: &dyn DiskFile) -> Result<Header, Distrust> {
    let mut bytes = [0; HEADER_READ_BYTES];
    let read = file.read_up_to(&mut bytes, 0).map_err(|_| Distrust::Unreadable)?;
    let bytes = &bytes[..read];
    let other = || header::later_version(bytes).map_or(Distrust::Format, Distrust::LaterVersion);
    Header::parse(bytes).ok_or_else(other)
}

/// Renames a side file of a later version, before one of this version takes its place: the program
/// that wrote it, or a search for damage, may need it.
pub(crate) fn keep_later_version(disk: &dyn Disk, side_path: &Path) -> io::Result<()> {
    let Ok(file) = disk.open(side_path, OpenMode::Read) else { return Ok(()) };
    let Err(Distrust::LaterVersion(_)) = read_header(file.as_ref()) else { return Ok(()) };
    let kept = with_suffix(side_path, LATER_SUFFIX);
    disk.rename(side_path, &kept)?;
    warn!(file = %kept.display(), "the checksums of the later version are kept under this name");
    Ok(())
}

impl Opened {
    /// The marker of that session, or of its predecessor if it was not written yet.
    pub(crate) fn last_writer(&self) -> LastWriter {
        self.last_writer
    }

    /// Whether bytes that the last session wrote and did not sync may be lost: it crashed before
    /// the last start of the system, or on another one, and nothing was written since.
    pub(crate) fn may_lack_bytes(&self) -> bool {
        let Session { nonce, boot, is_closed, .. } = self.header.session;
        let complete = LastWriter { nonce, is_complete: true };
        !is_closed && self.last_writer == complete && self.boot != Some(boot)
    }

    /// The end of the log when its checksums were written, all of it on stable storage. The log may
    /// be shorter now.
    pub(crate) fn durable_end(&self) -> u64 {
        self.durable_end
    }

    /// Logs a warning if a data file of `length` bytes has lost transactions.
    pub(crate) fn warn_if_shortened(&self, path: &Path, length: u64) {
        if self.durable_end > length {
            warn!(file = %path.display(), bytes = length, were_durable = self.durable_end,
                "the data file ends within a transaction that was on stable storage: transactions \
                 that were acknowledged are lost; keep the file and look for a newer copy");
        }
    }

    /// The announcement: the entries from the first one that was written before its bytes,
    /// ascending.
    pub(crate) fn announced(&self) -> &[Entry] {
        &self.promises
    }
}

impl Opened {
    /// Counts the valid entries behind those that were synced.
    fn count_entries(&mut self, data: &dyn DiskFile, length: u64) -> Result<(), Distrust> {
        let there = self.side.file.length().unwrap_or(0).saturating_sub(HEADER_BYTES);
        let there = there / ENTRY_BYTES as u64;
        let synced = self.header.count;
        if there < synced || self.header.end < MAGIC_BYTES {
            return Err(Distrust::Format);
        }
        let mut last_frame = None;
        let (mut count, mut number) = (synced, synced);
        let mut last_position = None;
        'all: while number < there && !self.header.session.is_closed {
            let Some(entries) = self.read(number, there) else { break };
            for entry in &entries {
                if last_position >= Some(entry.position) {
                    // Left of an announcement whose batch failed: nothing behind it counts.
                    break 'all;
                }
                last_position = Some(entry.position);
                match (entry.is_promise, entry.part) {
                    (true, _) => self.promises.push(*entry),
                    // Entries that replace announced ones may have been written in part.
                    (false, _) if !self.promises.is_empty() => self.promises.push(*entry),
                    (false, part) => {
                        count += 1;
                        last_frame = if part == Part::Frame { Some(*entry) } else { last_frame };
                    }
                }
            }
            if entries.len() * ENTRY_BYTES < READ_BYTES {
                break;
            }
            number += entries.len() as u64;
        }
        let end = match last_frame {
            None => self.header.end,
            Some(frame) => self.end_behind(data, length, &frame, count),
        };
        self.side.set(count, end);
        self.durable_end = end;
        Ok(())
    }

    /// The entries from a number on, up to the first invalid one.
    fn read(&self, number: u64, there: u64) -> Option<Vec<Entry>> {
        let count = (there - number).min((READ_BYTES / ENTRY_BYTES) as u64) as usize;
        let mut bytes = vec![0; count * ENTRY_BYTES];
        self.side.file.read_exact_at(&mut bytes, Header::entry_offset(number)).ok()?;
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let entries = entries.iter().map_while(|bytes| Entry::parse(bytes, self.side.salt));
        Some(entries.collect())
    }

    /// The end of the last covered transaction. It may lie beyond that of the file.
    fn end_behind(&self, data: &dyn DiskFile, length: u64, frame: &Entry, count: u64) -> u64 {
        if let Some(header) = repair::transaction_header(data, frame, length) {
            return frame.position + header.length + POINTER_BYTES;
        }
        // Damaged or cut off. Unless its last record, or its header as it is, shows more, it
        // extends to the end of the file.
        let last = count.checked_sub(1).and_then(|last| self.side.entry(last));
        let least = last.map_or(0, |last| last.position + 1);
        let record_end = last.filter(|last| last.part == Part::Record).and_then(|last| {
            let header = read_data_header(data, last.position)?;
            let fits = sum_at(data, last.position, length, Part::Record) == Some(last.sum);
            fits.then(|| last.position + header.record_bytes() + POINTER_BYTES)
        });
        let header_end = read_transaction_header(data, frame.position)
            .and_then(|header| end_of(frame.position, &header))
            .filter(|end| *end > length);
        record_end.or(header_end).unwrap_or(length).max(least)
    }

    /// Checks that the log has its length, or ends within a covered transaction, whose entries do
    /// not count then.
    fn check_length(&self, data: &dyn DiskFile, length: u64) -> Result<(), Distrust> {
        let (side, was) = (&self.side, self.durable_end.max(self.header.log.length));
        let other = Err(Distrust::OtherLength { was, is: length });
        if length >= side.end() {
            // The header may not include the last commits.
            return if length < self.header.log.length { other } else { Ok(()) };
        }
        let behind = side.number_at(length);
        let mut later = (behind..side.count()).filter_map(|number| side.entry(number));
        let next = later.find(|entry| entry.part == Part::Frame);
        let next = next.map_or(side.end(), |next| next.position);
        let last = behind.checked_sub(1).and_then(|number| side.frame_up_to(number));
        let Some((number, frame)) = last.filter(|_| next > length) else { return other };
        let header = read_transaction_header(data, frame.position);
        if header.is_some_and(|header| end_of(frame.position, &header) != Some(next)) {
            return other;
        }
        side.set(number, frame.position);
        Ok(())
    }
}

/// The end of a transaction according to its header.
fn end_of(position: u64, header: &TransactionHeader) -> Option<u64> {
    position.checked_add(header.length)?.checked_add(POINTER_BYTES)
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

#[cfg(test)]
mod tests {
    use zodium_disk::MemoryDisk;

    use super::{super::header::LogState, *};

    const SALT: u64 = 7;

    /// A session that crashed, and left these entries beside an empty log.
    fn opened_with(entries: impl Iterator<Item = Entry>) -> Result<Option<Opened>, Distrust> {
        let (disk, path) = (MemoryDisk::new(), Path::new("Data.fs"));
        disk.put(path, b"FS30".to_vec());
        let data = disk.open(path, OpenMode::Write).unwrap();
        let inode = data.status().unwrap().identity.inode;
        let session = Session { nonce: 1, before: 0, boot: 0, is_closed: false };
        let log = LogState { inode, length: MAGIC_BYTES, modified: 0 };
        let header = Header { salt: SALT, count: 0, end: MAGIC_BYTES, session, log };
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(HEADER_BYTES as usize, 0);
        entries.for_each(|entry| bytes.extend_from_slice(&entry.to_bytes(SALT)));
        disk.put(&with_suffix(path, SUFFIX), bytes);
        disk.put(&with_suffix(path, ".lock"), b" 1\nzodium 0000000000000001\n".to_vec());
        open(&disk, path, OpenMode::Read, &data, MAGIC_BYTES)
    }

    fn announced(count: u64) -> impl Iterator<Item = Entry> {
        (0..count).map(|n| Entry { is_promise: true, ..Entry::record(100 + n, 0) })
    }

    /// A batch that was announced failed, and the file was reopened. Fewer entries of later batches
    /// stand over the announcement, the rest of which has earlier positions.
    #[test]
    fn the_rest_of_a_long_announcement_ends_the_count_of_entries() {
        let written = [MAGIC_BYTES, 1_000_000].map(|position| Entry::frame(position, 0));
        let opened = opened_with(written.into_iter().chain(announced(10_000)));
        assert!(matches!(opened, Err(Distrust::OtherLength { is: MAGIC_BYTES, .. })), "{opened:?}");
    }

    /// Else a transaction of many records would be cut as torn after a power cut.
    #[test]
    fn an_announcement_is_read_as_a_whole_however_long_it_is() {
        let opened = opened_with(announced(10_000)).unwrap().unwrap();
        assert!(opened.announced().iter().copied().eq(announced(10_000)));
    }
}
