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
#[cfg(not(loom))]
mod tests {
    use zodium_disk::{FaultyDisk, MemoryDisk, Operation};

    use super::{super::header::LogState, *};
    use crate::testing;

    const SALT: u64 = 7;

    /// What a session has left: a log, its checksums, and the line that names a session.
    struct Left {
        session: Session,
        line: &'static str,
        data: Vec<u8>,
        /// The length of the log that the header has.
        length: u64,
        /// Entries that the header counts, and the end of what they cover.
        counted: (u64, u64),
        entries: Vec<[u8; ENTRY_BYTES]>,
    }

    impl Left {
        /// A session that crashed while the system went on, and had no header written since it
        /// began with an empty log.
        fn new(data: Vec<u8>, entries: impl IntoIterator<Item = Entry>) -> Left {
            let session = Session { nonce: 1, before: 0, boot: 1, is_closed: false };
            let line = "zodium 0000000000000001";
            let entries = entries.into_iter().map(|entry| entry.to_bytes(SALT)).collect();
            let (length, counted) = (MAGIC_BYTES, (0, MAGIC_BYTES));
            Left { session, line, data, length, counted, entries }
        }

        fn open(&self) -> Result<Option<Opened>, Distrust> {
            let (disk, path) = (MemoryDisk::new(), Path::new("Data.fs"));
            disk.put(path, self.data.clone());
            let data = disk.open(path, OpenMode::Write).unwrap();
            let inode = data.status().unwrap().identity.inode;
            let log = LogState { inode, length: self.length, modified: 0 };
            let (count, end) = self.counted;
            let header = Header { salt: SALT, count, end, session: self.session, log };
            let mut bytes = header.to_bytes().to_vec();
            bytes.resize(HEADER_BYTES as usize, 0);
            bytes.extend(self.entries.iter().flatten());
            disk.put(&with_suffix(path, SUFFIX), bytes);
            disk.put(&with_suffix(path, ".lock"), format!(" 1\n{}\n", self.line).into_bytes());
            open(&disk, path, OpenMode::Read, &data, self.data.len() as u64)
        }

        fn opened(&self) -> Opened {
            self.open().unwrap().unwrap()
        }
    }

    /// A session that crashed, and left these entries beside an empty log.
    fn opened_with(entries: impl Iterator<Item = Entry>) -> Result<Option<Opened>, Distrust> {
        Left::new(b"FS30".to_vec(), entries).open()
    }

    /// A log of three transactions with a record each, where they begin and the last one ends, and
    /// their entries: of each its frame, then its record.
    fn written() -> (Vec<u8>, [u64; 4], Vec<Entry>) {
        let disk = MemoryDisk::new();
        let storage = testing::open(disk.clone());
        let [first, second, third] = [1, 2, 3].map(|tid| {
            testing::commit(&storage, tid, testing::stores("about it", &["some data"]));
            storage.size()
        });
        let log = storage.reader().log();
        let side = log.checksums.as_ref().unwrap().side();
        let entries = (0..side.count()).map(|number| side.entry(number).unwrap()).collect();
        (testing::bytes_of(&disk), [MAGIC_BYTES, first, second, third], entries)
    }

    /// How many entries count, what they cover, and up to where the log was durable.
    fn told(opened: &Opened) -> (u64, u64, u64) {
        (opened.side.count(), opened.side.end(), opened.durable_end())
    }

    #[test]
    fn bytes_may_be_missing_after_a_crash_of_the_system_that_was_not_opened_since() {
        let cases = [
            (1, false, "zodium 0000000000000001", false),
            (7, false, "zodium 0000000000000001", true),
            (7, true, "zodium 0000000000000001", false),
            (7, false, "zodium 0000000000000001 gaps", false),
            (7, false, "zodium 0000000000000002", false),
            // Of a system that does not tell its starts.
            (0, false, "zodium 0000000000000001", true),
        ];
        for (boot, is_closed, line, expected) in cases {
            let session = Session { nonce: 1, before: 2, boot, is_closed };
            let left = Left { session, line, ..Left::new(b"FS30".to_vec(), []) };
            let what = format!("boot {boot}, closed: {is_closed}, {line}");
            assert_eq!(left.opened().may_lack_bytes(), expected, "{what}");
        }
    }

    #[test]
    fn a_session_is_trusted_that_is_named_or_the_one_before_it() {
        for (line, is_trusted) in [
            ("zodium 0000000000000001", true),
            ("zodium 0000000000000002", true),
            ("zodium 0000000000000003", false),
            ("", false),
        ] {
            let session = Session { nonce: 1, before: 2, boot: 1, is_closed: false };
            let left = Left { session, line, ..Left::new(b"FS30".to_vec(), []) };
            match left.open() {
                Ok(opened) => assert!(is_trusted && opened.is_some(), "{line}"),
                Err(distrust) => assert!(!is_trusted && distrust == Distrust::OtherWriter),
            }
        }
    }

    #[test]
    fn entries_behind_the_counted_ones_count_after_a_crash_only() {
        let (data, starts, entries) = written();
        let (length, end) = (data.len() as u64, starts[3]);
        let mut left = Left { length, ..Left::new(data, entries) };
        assert_eq!(told(&left.opened()), (6, end, end));
        left.counted = (2, starts[1]);
        assert_eq!(told(&left.opened()), (6, end, end));
        left.session.is_closed = true;
        assert_eq!(told(&left.opened()), (2, starts[1], starts[1]));
        left.counted = (6, end);
        assert_eq!(told(&left.opened()), (6, end, end));
        // The file must have as many, and a log has its magic.
        left.counted = (7, end);
        assert_eq!(left.open().unwrap_err(), Distrust::Format);
        left.counted = (0, MAGIC_BYTES - 1);
        assert_eq!(left.open().unwrap_err(), Distrust::Format);
    }

    #[test]
    fn an_entry_that_cannot_be_read_ends_the_count() {
        let (data, starts, entries) = written();
        for number in 0..entries.len() {
            let mut left = Left::new(data.clone(), entries.iter().copied());
            left.entries[number][9] ^= 1;
            // Up to the end of the last transaction of which there is an entry.
            let end = starts[number.div_ceil(2)];
            assert_eq!(told(&left.opened()), (number as u64, end, end), "entry {number}");
        }
    }

    /// Only in part may such entries have replaced those of the announcement.
    #[test]
    fn entries_behind_the_first_announced_one_are_of_the_announcement() {
        let (data, starts, mut entries) = written();
        for announced in [2, 4] {
            entries[announced].is_promise = true;
        }
        let opened = Left::new(data, entries.iter().copied()).opened();
        assert_eq!(told(&opened), (2, starts[1], starts[1]));
        assert_eq!(opened.announced(), &entries[2..]);
    }

    #[test]
    fn a_side_file_that_is_not_there_is_no_reason_for_distrust() {
        let (disk, path) = (FaultyDisk::new(MemoryDisk::new()), Path::new("Data.fs"));
        disk.files().put(path, b"FS30".to_vec());
        let data = disk.open(path, OpenMode::Read).unwrap();
        let opened = || open(&disk, path, OpenMode::Read, &data, MAGIC_BYTES);
        assert!(opened().unwrap().is_none());
        // The lock file is opened first.
        disk.fail(Operation::Open, 2, io::ErrorKind::PermissionDenied);
        assert_eq!(opened().unwrap_err(), Distrust::Unreadable);
    }

    /// Two wrong bits, which cannot be repaired.
    fn spoil(data: &mut [u8], at: u64) {
        data[at as usize] ^= 0x11;
    }

    /// A transaction follows that has no entries.
    #[test]
    fn the_last_record_tells_where_a_damaged_transaction_ends() {
        let (sound, starts, entries) = written();
        let record = entries[3].position;
        // Its tid, so that it has its lengths, and the length itself.
        for at in [starts[1] + 3, starts[1] + 14] {
            let mut data = sound.clone();
            spoil(&mut data, at);
            let mut left = Left::new(data, entries[..4].iter().copied());
            assert_eq!(told(&left.opened()), (4, starts[2], starts[2]), "{at}");
            // Else it is thought to go up to the end of the file.
            spoil(&mut left.data, record + 44);
            let length = left.data.len() as u64;
            let is_longer = at == starts[1] + 14;
            match is_longer {
                false => assert_eq!(told(&left.opened()), (4, length, length)),
                // Or beyond, by its header: then it does not count.
                true => {
                    let opened = left.opened();
                    assert_eq!((opened.side.count(), opened.side.end()), (2, starts[1]));
                    assert!(opened.durable_end() > length);
                }
            }
        }
    }

    #[test]
    fn a_log_that_ends_within_a_covered_transaction_is_the_same_log() {
        let (sound, starts, entries) = written();
        for end in starts[1] + 1..starts[2] {
            let data = sound[..end as usize].to_vec();
            let opened = Left::new(data.clone(), entries[..4].iter().copied()).opened();
            assert_eq!((opened.side.count(), opened.side.end()), (2, starts[1]), "{end}");
            assert!(opened.durable_end() > end);
            // One more transaction is missing as a whole.
            let opened = Left::new(data, entries.iter().copied()).opened();
            assert_eq!((opened.side.count(), opened.side.end()), (2, starts[1]), "{end}");
        }
        // Older copies end between transactions.
        for (n, start) in (1..).zip(&starts[1..3]) {
            let left = Left::new(sound[..*start as usize].to_vec(), entries.iter().copied());
            let distrust = left.open().unwrap_err();
            let Distrust::OtherLength { was, is } = distrust else { panic!("{distrust}") };
            assert!(was > is && is == *start, "{n}: {was}");
        }
        // A program that had another transaction there.
        let mut data = sound[..starts[2] as usize - 5].to_vec();
        spoil(&mut data, starts[1] + 15);
        let left = Left::new(data, entries.iter().copied());
        assert!(matches!(left.open(), Err(Distrust::OtherLength { .. })));
    }

    #[test]
    fn a_log_is_as_long_as_its_header_has_it_at_least() {
        let (data, _, entries) = written();
        for (more, is_trusted) in [(0, true), (1, false)] {
            let length = data.len() as u64 + more;
            let left = Left { length, ..Left::new(data.clone(), entries.iter().copied()) };
            assert_eq!(left.open().is_ok(), is_trusted, "{more} bytes more");
        }
    }

    #[test]
    fn whole_transactions_behind_an_orderly_close_are_of_another_program() {
        let (data, starts, entries) = written();
        let mut left = Left::new(data, entries[..4].iter().copied());
        (left.session.is_closed, left.length, left.counted) = (true, starts[2], (4, starts[2]));
        let distrust = left.open().unwrap_err();
        assert_eq!(distrust, Distrust::OtherLength { was: starts[2], is: starts[3] });
        // What is not whole may be anything.
        left.data.pop();
        assert_eq!(told(&left.opened()), (4, starts[2], starts[2]));
        left.data.truncate(starts[2] as usize);
        assert_eq!(told(&left.opened()), (4, starts[2], starts[2]));
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
