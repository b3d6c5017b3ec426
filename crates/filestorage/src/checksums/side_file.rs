//! Looks up entries of the side file by position, without an index in memory.
//!
//! Entries ascend, so a bisection among the first positions of pages finds the page of an entry.
//! These positions are read once and kept: 8 bytes for 256 entries.
//!
//! **Invariant.** Only entries with a matching seal are used. Whatever is wrong with the file, a
//! lookup returns the entry of that position or none.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use zodium_disk::DiskFile;

use super::entry::{ENTRY_BYTES, Entry, position_of};
use super::header::Header;
use crate::reading::Reading;
use crate::scan::Part;

/// Entries of a page.
pub(super) const PAGE_ENTRIES: u64 = 256;
const PAGE_BYTES: usize = PAGE_ENTRIES as usize * ENTRY_BYTES;
/// Pages in the first group of first positions, which are allocated together; each further group is
/// twice as large.
const FIRST_GROUP_PAGES: u64 = 1024;
const GROUPS: usize = 40;
/// First position of a page without a valid entry. No entry has so high a position.
const NONE: u64 = u64::MAX;

/// The side file of one generation of the log.
#[derive(Debug)]
pub(crate) struct SideFile {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) salt: u64,
    /// Entries that count. Release when entries were written, Acquire for lookups.
    count: AtomicU64,
    /// They cover the log up to here, except where it was damaged when they were computed.
    end: AtomicU64,
    /// First positions of pages; 0: not read yet.
    firsts: [OnceLock<Box<[AtomicU64]>>; GROUPS],
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Entry(Entry),
    /// Nothing.
    Uncovered,
    /// Ask again with [`Reading::Blocking`].
    WouldBlock,
}

/// A page of entries as read.
pub(crate) struct Page {
    number: u64,
    bytes: [u8; PAGE_BYTES],
    /// Bytes of entries that count.
    length: usize,
    /// The place of the entry behind the one that was found last.
    next: usize,
}

impl SideFile {
    /// A side file with `count` entries, which cover the log up to `end`.
    pub(super) fn new(
        path: &Path,
        file: Arc<dyn DiskFile>,
        salt: u64,
        (count, end): (u64, u64),
    ) -> SideFile {
        SideFile {
            path: path.to_owned(),
            file,
            salt,
            count: AtomicU64::new(count),
            end: AtomicU64::new(end),
            firsts: [const { OnceLock::new() }; GROUPS],
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The position up to which the entries cover the log.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Sets the number of entries that count, and the end of their coverage.
    pub(super) fn set(&self, count: u64, end: u64) {
        self.count.store(count, Ordering::Release);
        self.end.store(end, Ordering::Release);
    }

    /// The entry of a position.
    pub(crate) fn find(&self, position: u64, access: Reading<'_>) -> Found {
        let mut page = Page { number: NONE, bytes: [0; PAGE_BYTES], length: 0, next: 0 };
        self.find_with(position, access, &mut page)
    }

    /// As [`SideFile::find`], for ascending positions: `page` keeps the last page, and the next
    /// entry in it is tried first.
    pub(crate) fn find_with(&self, position: u64, access: Reading<'_>, page: &mut Page) -> Found {
        if position >= self.end() {
            return Found::Uncovered;
        }
        if let Some(entry) = self.next_entry(position, access, page) {
            return Found::Entry(entry);
        }
        match self.page_of(position, access) {
            Ok(Some(number)) => match self.read_page(number, access, page) {
                Ok(true) => page.entry(position, self.salt).map_or(Found::Uncovered, Found::Entry),
                Ok(false) => Found::WouldBlock,
                Err(_) => Found::Uncovered,
            },
            Ok(None) => Found::WouldBlock,
            // An unreadable page covers nothing.
            Err(_) => Found::Uncovered,
        }
    }

    /// The entry behind the one found last, if it has this position.
    fn next_entry(&self, position: u64, access: Reading<'_>, page: &mut Page) -> Option<Entry> {
        if page.number == NONE {
            return None;
        }
        if page.next as u64 == PAGE_ENTRIES {
            let number = page.number + 1;
            if number * PAGE_ENTRIES >= self.count() {
                return None;
            }
            self.read_page(number, access, page).ok().filter(|is_read| *is_read)?;
        }
        let counts = page.number * PAGE_ENTRIES + (page.next as u64) < self.count();
        counts.then(|| page.entry_at(page.next, position, self.salt)).flatten()
    }

    /// The entry with this number, if it is valid.
    pub(super) fn entry(&self, number: u64) -> Option<Entry> {
        let mut bytes = [0; ENTRY_BYTES];
        let read = self.file.read_exact_at(&mut bytes, Header::entry_offset(number));
        read.ok().and_then(|()| Entry::parse(&bytes, self.salt))
    }

    /// The last entry of a frame up to that number, and its number.
    pub(super) fn frame_up_to(&self, number: u64) -> Option<(u64, Entry)> {
        let mut end = number.saturating_add(1).min(self.count());
        while end > 0 {
            let start = end.saturating_sub(PAGE_ENTRIES);
            let mut bytes = vec![0; (end - start) as usize * ENTRY_BYTES];
            self.file.read_exact_at(&mut bytes, Header::entry_offset(start)).ok()?;
            let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
            let found = entries.iter().enumerate().rev().find_map(|(place, bytes)| {
                let entry = Entry::parse(bytes, self.salt)?;
                (entry.part == Part::Frame).then_some((start + place as u64, entry))
            });
            if found.is_some() {
                return found;
            }
            end = start;
        }
        None
    }

    /// The number of the entry of the record at `position`, if there is one.
    fn record_at(&self, position: u64) -> Option<u64> {
        let number = self.number_at(position);
        let entry = self.entry(number)?;
        (entry.position == position && entry.part == Part::Record).then_some(number)
    }

    /// The position of the transaction that contains the record at `position`, if that record has
    /// an entry.
    pub(crate) fn transaction_around(&self, position: u64) -> Option<u64> {
        let (_, frame) = self.frame_up_to(self.record_at(position)?)?;
        Some(frame.position)
    }

    /// The end of the record at `position`, if it has an entry: the next record's position, or
    /// `records_end`, the end of the records of its transaction.
    pub(crate) fn end_of_record(&self, position: u64, records_end: u64) -> Option<u64> {
        let next = self.record_at(position)? + 1;
        if next == self.count() {
            return Some(records_end);
        }
        let next = self.entry(next)?;
        match next.part {
            Part::Record => Some(next.position).filter(|end| *end < records_end),
            Part::Frame => Some(records_end).filter(|end| *end < next.position),
        }
    }

    /// Forgets the first positions of pages, before all entries are written anew.
    pub(super) fn forget_places(&self) {
        let groups = self.firsts.iter().filter_map(OnceLock::get);
        // Relaxed, as where they are stored.
        groups.flat_map(|group| group.iter()).for_each(|first| first.store(0, Ordering::Relaxed));
    }

    /// The number of the first entry at `position` or behind it. Invalid entries are skipped.
    pub(super) fn number_at(&self, position: u64) -> u64 {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            match (middle..high).find_map(|number| self.entry(number).map(|e| (number, e))) {
                Some((number, entry)) if entry.position < position => low = number + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// The page that contains the entry of a position, if there is one; `None` if it is cold.
    fn page_of(&self, position: u64, access: Reading<'_>) -> io::Result<Option<u64>> {
        let (mut low, mut high) = (0, self.count().div_ceil(PAGE_ENTRIES));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let mut probe = middle;
            let mut first = NONE;
            while probe < high && first == NONE {
                match self.first_of(probe, access)? {
                    Some(position) => first = position,
                    None => return Ok(None),
                }
                probe += 1;
            }
            // Pages without a valid entry lie on neither side.
            if first <= position { low = probe - 1 } else { high = middle }
        }
        Ok(Some(low))
    }

    /// The first position of a page; [`NONE`] if it has no valid entry, `None` if it is cold.
    fn first_of(&self, page: u64, access: Reading<'_>) -> io::Result<Option<u64>> {
        let (group, index) = place_of_first(page);
        let Some(group) = self.firsts.get(group) else { return Ok(Some(NONE)) };
        let group = group.get_or_init(|| zeros(index.1));
        let Some(first) = group.get(index.0) else { return Ok(Some(NONE)) };
        // Relaxed: no other data depend on it.
        let known = first.load(Ordering::Relaxed);
        if known != 0 {
            return Ok(Some(known));
        }
        let mut read = Page { number: NONE, bytes: [0; PAGE_BYTES], length: 0, next: 0 };
        if !self.read_page(page, access, &mut read)? {
            return Ok(None);
        }
        let position = read.first(self.salt);
        first.store(position, Ordering::Relaxed);
        Ok(Some(position))
    }

    /// Fills `page`; returns false if that would have to wait.
    fn read_page(&self, number: u64, access: Reading<'_>, page: &mut Page) -> io::Result<bool> {
        let wanted = (self.count() - number * PAGE_ENTRIES).min(PAGE_ENTRIES) as usize;
        let wanted = wanted * ENTRY_BYTES;
        if page.number == number && page.length == wanted {
            return Ok(true);
        }
        page.number = NONE;
        let offset = Header::entry_offset(number * PAGE_ENTRIES);
        let mut length = 0;
        while length < wanted {
            let (buffer, at) = (&mut page.bytes[length..wanted], offset + length as u64);
            let count = match access {
                Reading::Blocking => self.file.read_at(buffer, at)?,
                Reading::NonBlocking(_) => match self.file.read_resident_at(buffer, at)? {
                    Some(0) | None => {
                        access.note(&*self.file, at, wanted - length);
                        return Ok(false);
                    }
                    Some(count) => count,
                },
            };
            if count == 0 {
                // Another program cut the file: missing entries cover nothing.
                page.bytes[length..wanted].fill(0);
                break;
            }
            length += count;
        }
        (page.number, page.length, page.next) = (number, wanted, 0);
        Ok(true)
    }
}

impl Page {
    /// For [`SideFile::find_with`].
    pub(crate) fn empty() -> Box<Page> {
        Box::new(Page { number: NONE, bytes: [0; PAGE_BYTES], length: 0, next: 0 })
    }

    /// A linear search: entries are few, and a damaged one does not mislead it.
    fn entry(&mut self, position: u64, salt: u64) -> Option<Entry> {
        let places = 0..self.length / ENTRY_BYTES;
        places.into_iter().find_map(|place| self.entry_at(place, position, salt))
    }

    /// The entry at that place, if it is of this position. The one behind it is looked for next.
    fn entry_at(&mut self, place: usize, position: u64, salt: u64) -> Option<Entry> {
        let (entries, _) = self.bytes[..self.length].as_chunks::<ENTRY_BYTES>();
        let bytes = entries.get(place).filter(|bytes| position_of(bytes) == position)?;
        let entry = Entry::parse(bytes, salt)?;
        self.next = place + 1;
        Some(entry)
    }

    fn first(&self, salt: u64) -> u64 {
        let (entries, _) = self.bytes[..self.length].as_chunks::<ENTRY_BYTES>();
        let first = entries.iter().find_map(|bytes| Entry::parse(bytes, salt));
        first.map_or(NONE, |entry| entry.position)
    }
}

/// The group that holds the first position of a page, its place in there, and how many there are.
fn place_of_first(page: u64) -> (usize, (usize, usize)) {
    let number = page / FIRST_GROUP_PAGES + 1;
    let group = number.ilog2();
    let pages_before = ((1_u64 << group) - 1) * FIRST_GROUP_PAGES;
    let pages = FIRST_GROUP_PAGES << group;
    (group as usize, ((page - pages_before) as usize, pages as usize))
}

fn zeros(count: usize) -> Box<[AtomicU64]> {
    std::iter::repeat_with(AtomicU64::default).take(count).collect()
}

#[cfg(test)]
mod tests {
    use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation};

    use super::*;

    const SALT: u64 = 9;
    /// The length of each transaction: its frame is at a multiple of this.
    const STEP: u64 = 100;

    /// The entries of transactions with one record each, from this number on.
    fn entries(numbers: std::ops::Range<u64>) -> Vec<Entry> {
        let both = |n| [Entry::frame(n * STEP, n as u32), Entry::record(n * STEP + 30, n as u32)];
        numbers.flat_map(both).collect()
    }

    fn put(side: &SideFile, entries: &[Entry]) {
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_bytes(SALT)).collect();
        side.file.write_all_at(&bytes, Header::entry_offset(0)).unwrap();
    }

    /// A side file with these entries, which cover the log up to the end of the last transaction.
    fn side_on(disk: &dyn Disk, entries: &[Entry]) -> SideFile {
        let path = Path::new("Data.fs.checksums");
        let file = disk.open(path, OpenMode::Create).unwrap();
        let end = entries.last().map_or(0, |last| (last.position / STEP + 1) * STEP);
        let side = SideFile::new(path, file, SALT, (entries.len() as u64, end));
        put(&side, entries);
        side
    }

    fn side_of(entries: &[Entry]) -> SideFile {
        side_on(&MemoryDisk::new(), entries)
    }

    /// Makes an entry unreadable.
    fn spoil(side: &SideFile, number: u64) {
        side.file.write_all_at(&[0xee; ENTRY_BYTES], Header::entry_offset(number)).unwrap();
    }

    fn find(side: &SideFile, position: u64) -> Option<Entry> {
        match side.find(position, Reading::Blocking) {
            Found::Entry(entry) => Some(entry),
            Found::Uncovered => None,
            Found::WouldBlock => panic!("it may wait"),
        }
    }

    /// Some pages of entries, the last of which is not full, or has a single one.
    #[test]
    fn each_entry_is_found_by_its_position_and_no_other_position_has_one() {
        for transactions in [1, 2, 128, 129, 256, 500] {
            let entries = entries(1..1 + transactions);
            let side = side_of(&entries);
            let mut page = Page::empty();
            for entry in &entries {
                assert_eq!(find(&side, entry.position), Some(*entry));
                assert_eq!(find(&side, entry.position + 1), None);
                assert_eq!(find(&side, entry.position - 1), None);
                let found = side.find_with(entry.position, Reading::Blocking, &mut page);
                assert_eq!(found, Found::Entry(*entry), "in order");
            }
            assert_eq!(find(&side, side.end()), None);
            for entry in entries.iter().rev() {
                let found = side.find_with(entry.position, Reading::Blocking, &mut page);
                assert_eq!(found, Found::Entry(*entry), "backwards");
            }
        }
    }

    #[test]
    fn each_page_is_read_once_for_positions_that_ascend() {
        const PAGES: u64 = 40;
        let disk = FaultyDisk::new(MemoryDisk::new());
        let entries = entries(1..1 + PAGES * PAGE_ENTRIES / 2);
        let (side, mut page) = (side_on(&disk, &entries), Page::empty());
        let before = disk.count(Operation::Read);
        for entry in &entries {
            let found = side.find_with(entry.position, Reading::Blocking, &mut page);
            assert_eq!(found, Found::Entry(*entry));
        }
        let reads = disk.count(Operation::Read) - before;
        // To find the first one it looks at some others.
        assert!((PAGES..PAGES + 8).contains(&reads), "{reads} reads");
        // Where these are known, others are found with a read.
        (0..PAGES).for_each(|page| _ = side.first_of(page, Reading::Blocking).unwrap());
        let before = disk.count(Operation::Read);
        assert_eq!(find(&side, entries[5000].position), Some(entries[5000]));
        assert_eq!(disk.count(Operation::Read) - before, 1);
    }

    #[test]
    fn what_would_wait_is_not_called_uncovered() {
        let entries = entries(1..1 + 3 * PAGE_ENTRIES);
        for every in 1..=5 {
            let disk = FaultyDisk::new(MemoryDisk::new());
            let side = side_on(&disk, &entries);
            disk.forget_every(every);
            let (mut page, mut waits) = (Page::empty(), 0);
            for entry in entries.iter().step_by(3) {
                let resident = Reading::NonBlocking(None);
                match side.find_with(entry.position, resident, &mut page) {
                    Found::WouldBlock => waits += 1,
                    found => assert!(every > 1 && found == Found::Entry(*entry), "{found:?}"),
                }
            }
            assert!(waits > 0);
        }
    }

    #[test]
    fn what_is_covered_ends_before_the_end() {
        let entries = entries(1..3);
        let side = side_of(&entries);
        let last = entries[3].position;
        side.set(4, last + 1);
        assert_eq!(find(&side, last), Some(entries[3]));
        side.set(4, last);
        assert_eq!(find(&side, last), None);
        side.set(3, side.end() + STEP);
        assert_eq!(find(&side, last), None, "it does not count");
        // On another page than the first.
        let entries = self::entries(1..200);
        let side = side_of(&entries);
        side.set(300, side.end());
        assert_eq!(find(&side, entries[299].position), Some(entries[299]));
        assert_eq!(find(&side, entries[300].position), None);
        let mut page = Page::empty();
        for (number, entry) in entries.iter().enumerate() {
            let found = side.find_with(entry.position, Reading::Blocking, &mut page);
            let expected = if number < 300 { Found::Entry(*entry) } else { Found::Uncovered };
            assert_eq!(found, expected, "{number}");
        }
    }

    /// Whole pages, too.
    #[test]
    fn entries_that_cannot_be_read_hide_no_others() {
        let entries = entries(1..1 + 3 * PAGE_ENTRIES);
        let last = entries.len() - 1;
        let spoiled =
            [0..1, 5..6, 256..257, 511..512, last..last + 1, 256..512, 0..256, 256..1024, 0..512];
        for spoiled in spoiled {
            let side = side_of(&entries);
            spoiled.clone().for_each(|number| spoil(&side, number as u64));
            for (number, entry) in
                entries.iter().enumerate().step_by(51).chain([(last, &entries[last])])
            {
                let is_there = !spoiled.contains(&number);
                assert_eq!(find(&side, entry.position).is_some(), is_there, "{number}");
                let at = side.number_at(entry.position) as usize;
                assert!(at == number || spoiled.contains(&number), "{number}: {at}");
            }
        }
    }

    #[test]
    fn a_side_file_that_another_program_has_cut_covers_what_is_left() {
        let entries = entries(1..1 + PAGE_ENTRIES);
        let side = side_of(&entries);
        side.file.set_length(Header::entry_offset(100)).unwrap();
        assert_eq!(find(&side, entries[99].position), Some(entries[99]));
        for number in [100, 255, 256, 511] {
            assert_eq!(find(&side, entries[number].position), None);
            assert_eq!(side.entry(number as u64), None);
        }
    }

    #[test]
    fn frames_are_found_backwards_across_pages_of_records() {
        let records = (1..600).map(|n| Entry::record(STEP + 30 + n, 0));
        let frames = [Entry::frame(STEP, 1), Entry::frame(9 * STEP, 2)];
        let entries: Vec<_> = [frames[0]].into_iter().chain(records).chain([frames[1]]).collect();
        let side = side_of(&entries);
        assert_eq!(side.frame_up_to(0), Some((0, frames[0])));
        for number in [1, 255, 256, 257, 511, 512, 599] {
            assert_eq!(side.frame_up_to(number), Some((0, frames[0])), "{number}");
        }
        for number in [600, 601, u64::MAX] {
            assert_eq!(side.frame_up_to(number), Some((600, frames[1])), "{number}");
        }
        side.set(600, side.end());
        assert_eq!(side.frame_up_to(600), Some((0, frames[0])), "the last does not count");
        spoil(&side, 0);
        assert_eq!(side.frame_up_to(599), None);
        side.set(0, side.end());
        assert_eq!(side.frame_up_to(0), None);
    }

    #[test]
    fn the_first_entry_at_a_position_or_behind_it_has_a_number() {
        let entries = entries(1..300);
        let side = side_of(&entries);
        for (number, entry) in (0..).zip(&entries) {
            assert_eq!(side.number_at(entry.position), number);
            assert_eq!(side.number_at(entry.position + 1), number + 1);
        }
        assert_eq!((side.number_at(0), side.number_at(u64::MAX)), (0, side.count()));
    }

    #[test]
    fn a_record_ends_where_the_next_one_begins_or_the_records_end() {
        // Frames at 100, 200, ...; records 30 and 60 behind the first, 30 behind the others.
        let mut entries = entries(1..4);
        entries.insert(2, Entry::record(STEP + 60, 0));
        let side = side_of(&entries);
        assert_eq!(side.end_of_record(130, 190), Some(160));
        // The next record must be one of the same transaction, and so must the end of all.
        assert_eq!((side.end_of_record(130, 161), side.end_of_record(130, 160)), (Some(160), None));
        assert_eq!(side.end_of_record(160, 199), Some(199));
        assert_eq!((side.end_of_record(160, 200), side.end_of_record(160, 201)), (None, None));
        // Behind the last one there is no entry that tells more.
        assert_eq!(side.end_of_record(330, 5000), Some(5000));
        // No records.
        assert_eq!((side.end_of_record(100, 190), side.end_of_record(131, 190)), (None, None));
        spoil(&side, 2);
        assert_eq!(side.end_of_record(130, 190), None);
    }

    #[test]
    fn the_transaction_around_a_record_is_told_by_its_frame() {
        let side = side_of(&entries(1..4));
        for start in [100, 200, 300] {
            assert_eq!(side.transaction_around(start + 30), Some(start));
            assert_eq!(side.transaction_around(start), None, "no record");
            assert_eq!(side.transaction_around(start + 31), None);
        }
    }

    /// Else lookups would go to the pages where positions have been before.
    #[test]
    fn other_entries_are_found_once_the_places_of_the_ones_before_are_forgotten() {
        let before = entries(1..1 + 2 * PAGE_ENTRIES);
        let side = side_of(&before);
        before.iter().for_each(|entry| assert_eq!(find(&side, entry.position), Some(*entry)));
        let after = entries(900..900 + 2 * PAGE_ENTRIES);
        side.forget_places();
        put(&side, &after);
        side.set(after.len() as u64, u64::MAX);
        after.iter().for_each(|entry| assert_eq!(find(&side, entry.position), Some(*entry)));
    }

    #[test]
    fn first_positions_have_each_a_place_of_their_own() {
        let mut before = (0, 0);
        for page in 1..100_000 {
            let (group, (index, pages)) = place_of_first(page);
            assert!(index < pages);
            let follows =
                (group, index) == (before.0, before.1 + 1) || (group, index) == (before.0 + 1, 0);
            assert!(follows, "page {page}");
            before = (group, index);
        }
        assert_eq!(place_of_first(0).0, 0);
    }
}
