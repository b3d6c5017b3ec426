//! Writes the side file: sessions, and entries with the commits.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tracing::warn;
use zodium_disk::{Disk, DiskFile, OpenMode};

use super::batch::Batch;
use super::entry::{ENTRY_BYTES, Entry};
use super::header::{HEADER_BYTES, Header, LogState, Session, random};
use super::opening::Opened;
use super::side_file::SideFile;
use crate::format::MAGIC_BYTES;
use crate::format::create_like;

/// End of the coverage if no entry counts. No log ends there.
const VOID_END: u64 = 0;

/// A side file, and its session if it is written.
#[derive(Debug)]
pub(crate) struct Writing {
    side: Arc<SideFile>,
    /// `None` if the log was opened read-only.
    state: Option<Mutex<State>>,
}

/// The state of the session.
#[derive(Debug)]
pub(crate) struct State {
    session: Session,
    /// Inode number of the log.
    inode: u64,
    /// When the log was last changed; 0 before the orderly close.
    modified: i64,
    /// End of the log on stable storage, whether published or not.
    pub(super) log_end: u64,
    /// Entries on stable storage.
    synced: u64,
    /// They cover the log up to here.
    synced_end: u64,
    /// Whether the last write failed, which has been logged.
    is_failing: bool,
}

impl Writing {
    /// For a side file that is only read.
    pub(crate) fn never(side: Arc<SideFile>) -> Writing {
        Writing { side, state: None }
    }

    /// Begins a session in an existing side file, after cutting off entries that do not count. The
    /// header of the new session is on stable storage when this returns.
    pub(crate) fn resume(opened: &Opened, log: &dyn DiskFile, log_end: u64) -> io::Result<Writing> {
        let side = Arc::clone(&opened.side);
        if side.end() > log_end {
            side.set(side.number_at(log_end), log_end);
        }
        let length = Header::entry_offset(side.count());
        if side.file.length()? > length {
            side.file.set_length(length)?;
            // Before entries are written there: the old ones must not come back behind them.
            side.file.sync()?;
        }
        // Until the lock file names this session, it names its predecessor.
        Writing::begin(side, log, log_end, (opened.last_writer().nonce, opened.boot))
    }

    /// Creates a side file without entries for a log beside it, and begins a session in it, with
    /// the predecessor `before`, 0 for none. The caller syncs the folder.
    pub(crate) fn create(
        disk: &dyn Disk,
        (path, model): (&Path, &Path),
        log: &dyn DiskFile,
        log_end: u64,
        before: u64,
    ) -> io::Result<Writing> {
        let created = create_like(disk, path, OpenMode::Truncate, model);
        let file = created.map_err(io::Error::other)?;
        file.write_all_at(&[0; HEADER_BYTES as usize], 0)?;
        let side = SideFile::new(path, file, random(), (0, MAGIC_BYTES));
        Writing::begin(Arc::new(side), log, log_end, (before, disk.boot()))
    }

    fn begin(
        side: Arc<SideFile>,
        log: &dyn DiskFile,
        log_end: u64,
        (before, boot): (u64, Option<u64>),
    ) -> io::Result<Writing> {
        let (nonce, boot) = (random(), boot.unwrap_or_default());
        let session = Session { nonce, before, boot, is_closed: false };
        let (inode, modified) = (log.status()?.identity.inode, 0);
        let (synced, synced_end) = (side.count(), side.end());
        let state =
            State { session, inode, modified, log_end, synced, synced_end, is_failing: false };
        side.file.sync()?;
        write_header(&side, &state)?;
        side.file.sync()?;
        Ok(Writing { side, state: Some(Mutex::new(state)) })
    }

    pub(crate) fn side(&self) -> &Arc<SideFile> {
        &self.side
    }

    /// The number of this session; `None` if the file is only read.
    pub(crate) fn nonce(&self) -> Option<u64> {
        self.state.as_ref().map(|state| state.lock().session.nonce)
    }

    /// Adds the entries of transactions that are on stable storage, if everything before them is
    /// covered.
    pub(crate) fn append(&self, start: u64, end: u64, batch: &Batch) {
        let Some(mut state) = self.state() else { return };
        state.log_end = state.log_end.max(end);
        if self.side.end() == start {
            self.add(&mut state, end, batch);
        }
    }

    /// Discards all entries, which belong to another log. They can be computed again after
    /// [`Writing::restart`].
    pub(super) fn void(&self) {
        // Locked, so that none is added meanwhile.
        let _state = self.state();
        self.side.set(0, VOID_END);
    }

    /// Whether no entry counts, and none is written.
    pub(crate) fn is_void(&self) -> bool {
        self.side.end() == VOID_END
    }

    /// Empties a side file without valid entries, so that all can be computed again.
    pub(crate) fn restart(&self) -> io::Result<()> {
        let Some(mut state) = self.state() else { return Ok(()) };
        self.side.forget_places();
        self.side.file.set_length(HEADER_BYTES)?;
        // Before anything is written there: what is cut must not come back behind it.
        self.side.file.sync()?;
        write_header_of(&self.side, &state, 0, MAGIC_BYTES)?;
        self.side.file.sync()?;
        (state.synced, state.synced_end) = (0, MAGIC_BYTES);
        self.side.set(0, MAGIC_BYTES);
        Ok(())
    }

    pub(super) fn state(&self) -> Option<MutexGuard<'_, State>> {
        self.state.as_ref().map(Mutex::lock)
    }

    /// Adds entries behind the others.
    pub(super) fn add(&self, state: &mut State, end: u64, batch: &Batch) -> bool {
        let side = &self.side;
        let count = side.count();
        match self.write(count, batch.entries().iter().copied()) {
            Ok(()) => {
                side.set(count + batch.entries().len() as u64, end);
                state.is_failing = false;
                true
            }
            Err(error) => {
                if !state.is_failing {
                    warn!(file = %side.path.display(), %error, "checksums cannot be written; \
                        what is committed is not covered until they can be again");
                }
                state.is_failing = true;
                false
            }
        }
    }

    /// Announces transactions: writes their entries before their bytes, and returns when the
    /// entries are on stable storage. [`Writing::append`] overwrites them with the final ones.
    pub(crate) fn promise(&self, batch: &Batch) -> io::Result<()> {
        if self.state.is_none() {
            return Ok(());
        }
        let promise = |entry: &Entry| Entry { is_promise: true, ..*entry };
        self.write(self.side.count(), batch.entries().iter().map(promise))?;
        self.sync_entries()
    }

    fn sync_entries(&self) -> io::Result<()> {
        self.side.file.sync().inspect_err(|_| {
            self.state().iter().for_each(|state| self.uncount_unsynced(state));
        })
    }

    /// Call after a failed sync. Entries that were not synced before do not count any more: the
    /// system may have dropped them, and an opening reads none that follow them.
    fn uncount_unsynced(&self, state: &State) {
        if self.side.end() > state.synced_end {
            self.side.forget_places();
            self.side.set(state.synced, state.synced_end);
        }
    }

    fn write(&self, number: u64, entries: impl Iterator<Item = Entry>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(entries.size_hint().0 * ENTRY_BYTES);
        entries.for_each(|entry| bytes.extend_from_slice(&entry.to_bytes(self.side.salt)));
        self.side.file.write_all_at(&bytes, Header::entry_offset(number))
    }

    /// Syncs all entries, and then a header that counts them.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.sync_as(None)
    }

    /// As [`Writing::sync`], and notes that the log was closed in an orderly way.
    pub(crate) fn close(&self, log: &dyn DiskFile) -> io::Result<()> {
        self.sync_as(Some(log.status()?.modified))
    }

    /// `closed`: when the log was last changed, if that is done.
    fn sync_as(&self, closed: Option<i64>) -> io::Result<()> {
        let Some(state) = self.state() else { return Ok(()) };
        let (count, end) = (self.side.count(), self.side.end());
        if count == state.synced && closed.is_none() {
            return Ok(());
        }
        drop(state);
        // Without the lock, so that commits do not wait.
        self.sync_entries()?;
        let Some(mut state) = self.state() else { return Ok(()) };
        state.session.is_closed = closed.is_some();
        state.modified = closed.unwrap_or_default();
        write_header_of(&self.side, &state, count, end)?;
        self.side.file.sync().inspect_err(|_| self.uncount_unsynced(&state))?;
        (state.synced, state.synced_end) = (count, end);
        Ok(())
    }
}

fn write_header(side: &SideFile, state: &State) -> io::Result<()> {
    write_header_of(side, state, side.count(), side.end())
}

fn write_header_of(side: &SideFile, state: &State, count: u64, end: u64) -> io::Result<()> {
    let State { session, inode, modified, log_end: length, .. } = *state;
    let log = LogState { inode, length, modified };
    let header = Header { salt: side.salt, count, end, session, log };
    side.file.write_all_at(&header.to_bytes(), 0)
}
