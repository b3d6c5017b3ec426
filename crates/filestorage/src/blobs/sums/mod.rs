//! Length and CRC-32C of each blob that was committed here, in `.zodium-sums` in the blob
//! directory. ZODB's formats record neither, so without them a shortened blob looks whole.
//!
//! ```text
//! file  := head:32 entry:32 ...
//! ```
//!
//! Key decision: an entry stands for itself. The blob of an object and a transaction never
//! changes, and an entry names both and has a checksum of its own ([`entry`]). So the file need
//! not be in step with the log, whoever else has written that meanwhile: an entry whose blob is
//! gone is of no effect, and a blob without an entry is not recorded, which is no damage. Deleting
//! the file is always safe.
//!
//! That is also why nothing waits for it: entries are written after their transaction is durable,
//! they are synced when the storage is closed, and those that a crash or a full disk takes are
//! missing.
//!
//! Entries ascend by tid and oid, so that a lookup bisects ([`search`]). When a transaction is not
//! later than the last one here, the entries from there on are of a history that was given up, and
//! are cut.

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
use super::Fingerprint;

/// The file, within the blob directory. ZODB's tools pass over what begins with a dot.
pub(super) const NAME: &str = ".zodium-sums";

const HEAD_BYTES: usize = 32;
/// Tells people what the file is. Nothing depends on it: another format needs another name.
const HEAD: &[u8; HEAD_BYTES] = b"zodium blob sums, 32 bytes each\n";

/// The fingerprints of the blobs of one directory.
#[derive(Debug)]
pub(super) struct Sums {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None`: there was none, or it could not be used, when it was last needed.
    file: Option<Arc<dyn DiskFile>>,
    /// Entries in it.
    count: u64,
    /// No entry is of a later transaction.
    last_tid: Tid,
    /// How often entries were cut off: what was read of them before is then not to be relied on.
    cuts: u64,
    /// Whether something was written since it was last synced.
    is_unsynced: bool,
    /// That it cannot be used has been logged.
    is_failing: bool,
}

impl Sums {
    /// Opens the file in a blob directory. One that is missing is made for the first entry. One
    /// that cannot be used is logged, and nothing is recorded then.
    pub(super) fn open(disk: Arc<dyn Disk>, folder: &Path, read_only: bool) -> Sums {
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
    pub(super) fn find(&self, oid: Oid, tid: Tid) -> Option<Fingerprint> {
        let state = self.state.lock();
        let (file, count) = (Arc::clone(state.file.as_ref()?), state.count);
        // Lookups do not wait for one another, nor a commit for them.
        drop(state);
        match Search::new(file.as_ref(), count).find(oid, tid) {
            Ok(entry) => entry.map(|entry| entry.fingerprint),
            Err(error) => {
                note_failure(&mut self.state.lock(), &self.path, &error);
                None
            }
        }
    }

    /// Cuts entries of a history that was given up, before a transaction of that tid comes into
    /// the log: no blob of it may ever be compared with what another one was. Transactions come in
    /// the order of their tids.
    pub(super) fn make_way(&self, tid: Tid) {
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

    /// Records the blobs of a transaction that is durable. Transactions come in the order of their
    /// tids. When that fails it is logged, and the blobs are not recorded.
    pub(super) fn append(&self, tid: Tid, mut blobs: Vec<(Oid, Fingerprint)>) {
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

    /// Returns when all entries are on stable storage. A failure is logged: they may be missing
    /// after a power cut, which is all that can come of it.
    pub(super) fn sync(&self) {
        let mut state = self.state.lock();
        let Some(file) = state.file.clone().filter(|_| state.is_unsynced) else { return };
        state.is_unsynced = false;
        drop(state);
        if let Err(error) = file.sync().and_then(|()| self.disk.sync_folder_of(&self.path)) {
            note_failure(&mut self.state.lock(), &self.path, &error);
        }
    }

    /// Where the file is, if there is one.
    pub(super) fn path(&self) -> Option<&Path> {
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
        // Most often done before.
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
    /// Begins to use a file. For writing it gets its head, and what a crash left behind the last
    /// whole entry is cut.
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

    /// Cuts the entries of a transaction and of all later ones off, if there are any. That is
    /// rare, so it is synced: what is cut must not come back.
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

    /// Cuts what a failed write has left. Where that fails too, the next entries take its place.
    fn cut_surplus(&self) {
        let Some(file) = &self.file else { return };
        let end = offset_of(self.count);
        if file.length().is_ok_and(|length| length > end) {
            let _ = file.set_length(end);
        }
    }
}

/// Where the entry of that place begins.
fn offset_of(place: u64) -> u64 {
    HEAD_BYTES as u64 + place * ENTRY_BYTES as u64
}

/// Says it when it did not fail before.
fn note_failure(state: &mut State, path: &Path, error: &io::Error) {
    if !mem::replace(&mut state.is_failing, true) {
        warn!(file = %path.display(), %error,
            "lengths and sums of blobs cannot be recorded or looked up; blobs are served, and \
             those committed meanwhile are not compared with anything later");
    }
}

#[cfg(test)]
mod tests;
