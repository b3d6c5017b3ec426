//! Records length and CRC-32C of each committed blob, in `.zodium-sums` in the blob directory.
//! ZODB's formats record neither, so a shortened blob would look whole.
//!
//! ```text
//! file  := head:32 entry:32 ...
//! ```
//!
//! Key decision: each entry is valid by itself. The blob of one object and transaction never
//! changes, and an entry names both and has its own checksum ([`entry`]). So the file need not
//! match the log, which other programs may have written meanwhile. An entry of a removed blob is
//! never looked up. A blob without an entry is not recorded, which is no damage. Deleting the file
//! is always safe.
//!
//! So no commit waits for it. Entries are written after their transaction is durable, and synced
//! when the storage is closed. A crash or a full disk can only lose entries.
//!
//! Entries ascend by tid and oid, so that a lookup bisects ([`search`]). A transaction that is not
//! later than the last entry belongs to an older file that was restored. The entries from its tid
//! on are cut off then.

mod dropping;
mod entry;
mod search;

use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::warn;
use zodium_disk::{Disk, DiskFile, OpenMode};
use zodium_types::{Oid, Tid};

use self::entry::{ENTRY_BYTES, Entry};
use self::search::Search;
use crate::fingerprint::Fingerprint;

/// Name of the file in the blob directory. ZODB's tools ignore names that begin with a dot.
pub(crate) const NAME: &str = ".zodium-sums";

const HEAD_BYTES: usize = 32;
/// Tells a reader what the file is. It is not checked, so another format needs another name.
const HEAD: &[u8; HEAD_BYTES] = b"zodium blob sums, 32 bytes each\n";

/// The fingerprints of the blobs of one directory.
#[derive(Debug)]
pub(crate) struct Sums {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` when the file was missing, or not usable, at its last use.
    file: Option<Arc<dyn DiskFile>>,
    /// Entries in it.
    count: u64,
    /// No entry is of a later transaction.
    last_tid: Tid,
    /// How often entries were cut off. A copy that was begun before a cut is not valid.
    cuts: u64,
    /// Whether there are writes since the last sync.
    is_unsynced: bool,
    /// Whether the last use failed, which has been logged.
    is_failing: bool,
}

impl Sums {
    /// Opens the file in a blob directory. A missing file is created with the first entry. A
    /// failure is logged, and the blob directory is used without the file.
    pub(crate) fn open(disk: Arc<dyn Disk>, folder: &Path, read_only: bool) -> Sums {
        let path = folder.join(NAME);
        let mut state = State::default();
        if !read_only {
            dropping::remove_unfinished(disk.as_ref(), &path);
        }
        let mode = if read_only { OpenMode::Read } else { OpenMode::Write };
        match disk.open(&path, mode).and_then(|file| state.take(file, read_only)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => note_failure(&mut state, &path, &error),
            Ok(()) => {}
        }
        Sums { disk, path, state: Mutex::new(state) }
    }

    /// What was recorded of a blob. Blocking.
    pub(crate) fn find(&self, oid: Oid, tid: Tid) -> Option<Fingerprint> {
        let state = self.state.lock();
        let (file, count) = (Arc::clone(state.file.as_ref()?), state.count);
        // Without the lock: neither other lookups nor commits wait for the reads.
        drop(state);
        match Search::new(file.as_ref(), count).find(oid, tid) {
            Ok(entry) => entry.map(|entry| entry.fingerprint),
            Err(error) => {
                note_failure(&mut self.state.lock(), &self.path, &error);
                None
            }
        }
    }

    /// What is recorded of each transaction from `tid` on, in their order. Blocking.
    pub(crate) fn recorded_from(&self, tid: Tid) -> Vec<(Tid, Vec<(Oid, Fingerprint)>)> {
        let mut state = self.state.lock();
        let entries = match state.entries_from(tid) {
            Ok(entries) => entries,
            Err(error) => {
                note_failure(&mut state, &self.path, &error);
                return Vec::new();
            }
        };
        let groups = entries.chunk_by(|one, next| one.tid == next.tid);
        let blobs = |group: &[Entry]| group.iter().map(|it| (it.oid, it.fingerprint)).collect();
        groups.map(|group| (group[0].tid, blobs(group))).collect()
    }

    /// Cuts off entries from `tid` on, before a transaction of that tid comes into the log. They
    /// are from before an older file was restored, and a new blob must not be compared with them.
    /// Called in the order of tids.
    pub(crate) fn make_way(&self, tid: Tid) {
        let mut state = self.state.lock();
        if state.file.is_none() {
            match self.disk.open(&self.path, OpenMode::Write) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                opened => {
                    if let Err(error) = opened.and_then(|file| state.take(file, false)) {
                        return note_failure(&mut state, &self.path, &error);
                    }
                }
            }
        }
        if let Err(error) = state.cut_from(tid) {
            note_failure(&mut state, &self.path, &error);
        }
    }

    /// Records the blobs of a durable transaction. Called in the order of tids. A failure is
    /// logged, and the blobs are not recorded.
    pub(crate) fn append(&self, tid: Tid, mut blobs: Vec<(Oid, Fingerprint)>) {
        if blobs.is_empty() {
            return;
        }
        blobs.sort_unstable_by_key(|(oid, _)| *oid);
        let mut state = self.state.lock();
        match self.try_append(&mut state, tid, &blobs) {
            Ok(()) => state.is_failing = false,
            Err(error) => {
                note_failure(&mut state, &self.path, &error);
                state.cut_surplus();
            }
        }
    }

    /// Returns when all entries are on stable storage. A failure is only logged: a power cut may
    /// then lose entries.
    pub(crate) fn sync(&self) {
        let mut state = self.state.lock();
        let Some(file) = state.file.clone().filter(|_| state.is_unsynced) else { return };
        state.is_unsynced = false;
        drop(state);
        if let Err(error) = file.sync().and_then(|()| self.disk.sync_folder_of(&self.path)) {
            note_failure(&mut self.state.lock(), &self.path, &error);
        }
    }

    /// Path of the file, if it is in use.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.state.lock().file.is_some().then_some(self.path.as_path())
    }

    fn try_append(
        &self,
        state: &mut State,
        tid: Tid,
        blobs: &[(Oid, Fingerprint)],
    ) -> io::Result<()> {
        if state.file.is_none() {
            let file = self.disk.open(&self.path, OpenMode::Create)?;
            state.take(file, false)?;
        }
        // Usually done by `make_way`.
        state.cut_from(tid)?;
        let Some(file) = state.file.clone() else { return Ok(()) };
        let mut bytes = Vec::with_capacity(blobs.len() * ENTRY_BYTES);
        for (oid, fingerprint) in blobs {
            let entry = Entry { oid: *oid, tid, fingerprint: *fingerprint };
            bytes.extend_from_slice(&entry.to_bytes());
        }
        state.is_unsynced = true;
        file.write_all_at(&bytes, offset_of(state.count))?;
        state.count += blobs.len() as u64;
        state.last_tid = tid;
        Ok(())
    }
}

impl State {
    /// Begins to use an open file. For writing, its head is written if necessary, and whatever
    /// follows the last whole entry is cut off.
    fn take(&mut self, file: Arc<dyn DiskFile>, read_only: bool) -> io::Result<()> {
        let length = file.length()?;
        let count = length.saturating_sub(HEAD_BYTES as u64) / ENTRY_BYTES as u64;
        let last = Search::new(file.as_ref(), count).last_whole()?;
        self.count = last.map_or(0, |(place, _)| place + 1);
        self.last_tid = last.map_or(Tid::ZERO, |(_, entry)| entry.tid);
        if !read_only {
            let mut head = [0; HEAD_BYTES];
            file.read_up_to(&mut head, 0)?;
            if head != *HEAD {
                self.is_unsynced = true;
                file.write_all_at(HEAD, 0)?;
            }
            if length > offset_of(self.count) {
                file.set_length(offset_of(self.count))?;
            }
        }
        self.file = Some(file);
        Ok(())
    }

    fn entries_from(&self, tid: Tid) -> io::Result<Vec<Entry>> {
        let Some(file) = self.file.as_ref().filter(|_| tid <= self.last_tid) else {
            return Ok(Vec::new());
        };
        let first = Search::new(file.as_ref(), self.count).first_not_before((tid, Oid(0)))?;
        let mut bytes = vec![0; (self.count - first) as usize * ENTRY_BYTES];
        file.read_exact_at(&mut bytes, offset_of(first))?;
        Ok(bytes.as_chunks::<ENTRY_BYTES>().0.iter().filter_map(Entry::parse).collect())
    }

    /// Cuts off the entries of a transaction and of all later ones, if there are any. The cut is
    /// rare and is synced: a power cut must not bring the entries back.
    fn cut_from(&mut self, tid: Tid) -> io::Result<()> {
        let Some(file) = self.file.clone().filter(|_| tid <= self.last_tid) else { return Ok(()) };
        let kept = Search::new(file.as_ref(), self.count).first_not_before((tid, Oid(0)))?;
        self.cuts += 1;
        file.set_length(offset_of(kept))?;
        file.sync()?;
        self.count = kept;
        self.last_tid = Tid(tid.0.saturating_sub(1));
        Ok(())
    }

    /// Cuts off the rest of a failed write. If that fails too, the next entries overwrite it.
    fn cut_surplus(&self) {
        let Some(file) = &self.file else { return };
        let end = offset_of(self.count);
        if file.length().is_ok_and(|length| length > end) {
            let _ = file.set_length(end);
        }
    }
}

/// Position of an entry in the file.
fn offset_of(place: u64) -> u64 {
    HEAD_BYTES as u64 + place * ENTRY_BYTES as u64
}

/// Logs a failure, if the last use did not fail.
fn note_failure(state: &mut State, path: &Path, error: &io::Error) {
    if !mem::replace(&mut state.is_failing, true) {
        warn!(file = %path.display(), %error,
            "lengths and sums of blobs cannot be recorded or looked up; blobs are served, and \
             those committed meanwhile are not compared with anything later");
    }
}

#[cfg(test)]
mod tests;
