//! Drops the entries of blobs that a pack has removed: a new file without them replaces the old
//! one, while commits continue.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use zodium_disk::with_suffix;
use zodium_disk::{Disk, DiskFile, OpenMode};
use zodium_types::{Oid, Tid};

use super::entry::{ENTRY_BYTES, Entry};
use super::{HEAD, Sums, note_failure, offset_of};

/// Suffix of the new file until it is complete.
const NEW: &str = ".new";
/// Entries read and written together.
const PIECE_BYTES: usize = 1 << 20;

/// Removes an incomplete new file, which a crash or a failure can leave.
pub(super) fn remove_unfinished(disk: &dyn Disk, path: &Path) {
    // It only takes space, and the next new file overwrites it.
    let _ = disk.remove(&with_suffix(path, NEW));
}

/// The new file, as far as it is written.
struct Copy<'a> {
    dropped: FxHashSet<&'a (Oid, Tid)>,
    file: Arc<dyn DiskFile>,
    /// Entries in it.
    count: u64,
}

impl Sums {
    /// Drops the entries of these blobs. A failure is logged; the entries then stay, and only take
    /// space.
    pub(crate) fn drop_entries(&self, dropped: &[(Oid, Tid)]) {
        match self.write_without(dropped, &with_suffix(&self.path, NEW)) {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => note_failure(&mut self.state.lock(), &self.path, &error),
        }
        remove_unfinished(self.disk.as_ref(), &self.path);
    }

    /// Returns whether the new file replaced the old one.
    fn write_without(&self, dropped: &[(Oid, Tid)], path: &Path) -> io::Result<bool> {
        let state = self.state.lock();
        let Some(source) = state.file.clone().filter(|_| !dropped.is_empty()) else {
            return Ok(false);
        };
        let (count, cuts) = (state.count, state.cuts);
        drop(state);
        let file = self.disk.open(path, OpenMode::Truncate)?;
        file.write_all_at(HEAD, 0)?;
        let mut copy = Copy { dropped: dropped.iter().collect(), file, count: 0 };
        copy.add(source.as_ref(), 0, count)?;
        if copy.count == count {
            return Ok(false);
        }
        // Before the rename: a power cut must not lose entries that were durable.
        copy.file.sync()?;
        // Held until the rename: later entries go to the new file.
        let mut state = self.state.lock();
        if state.cuts != cuts {
            return Ok(false);
        }
        copy.add(source.as_ref(), count, state.count)?;
        self.disk.move_file(path, &self.path)?;
        (state.file, state.count, state.is_unsynced) = (Some(copy.file), copy.count, true);
        drop(state);
        // Entries that are cut from now on must not come back with the old file.
        self.disk.sync_folder_of(&self.path)?;
        Ok(true)
    }
}

impl Copy<'_> {
    /// Adds the entries from place `start` on and before `end`, but for those to be dropped.
    fn add(&mut self, source: &dyn DiskFile, start: u64, end: u64) -> io::Result<()> {
        let (mut offset, end) = (offset_of(start), offset_of(end));
        let mut piece = vec![0; PIECE_BYTES];
        while offset < end {
            let count = (end - offset).min(PIECE_BYTES as u64) as usize;
            source.read_exact_at(&mut piece[..count], offset)?;
            let mut kept = Vec::with_capacity(count);
            for bytes in piece[..count].as_chunks::<ENTRY_BYTES>().0 {
                let entry = Entry::parse(bytes);
                if entry.is_some_and(|entry| !self.dropped.contains(&(entry.oid, entry.tid))) {
                    kept.extend_from_slice(bytes);
                }
            }
            self.file.write_all_at(&kept, offset_of(self.count))?;
            self.count += (kept.len() / ENTRY_BYTES) as u64;
            offset += count as u64;
        }
        Ok(())
    }
}
