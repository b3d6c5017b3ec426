//! The log: what threads append to, and how far it has got.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use zodium_disk::{Disk, DiskFile, FileLock, LockError, OpenMode, keep_end, with_suffix};

use crate::locked_file::LockedFile;
use crate::reader::LogReader;
use crate::replacement::Replacement;
use crate::shared::{Shared, Sync};
use crate::writer::Writer;
use crate::{Chunk, CloseError, OpenError, record};

/// What a record must have reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The file: it survives the end of the process.
    Written,
    /// The device: it survives a power cut too.
    Synced,
}

/// A log that is open for appending. Dropping it writes and syncs what was appended,
/// and notes that.
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    _lock: FileLock,
}

impl Log {
    /// Opens a log, or creates it, and hands all its records to `read`, in order, then `None`. If
    /// `read` fails, the file stays as it is.
    ///
    /// The end of a write that a crash has cut off is removed, and kept beside the log if there is
    /// space.
    ///
    /// # Errors
    /// The file cannot be read, another process has it, or it is damaged.
    pub fn open<E: From<OpenError>>(
        disk: &Arc<dyn Disk>,
        path: &Path,
        sync: Sync,
        mut read: impl FnMut(Option<Chunk>) -> Result<(), E>,
    ) -> Result<Log, E> {
        let failed_at = |path: &Path, action| {
            let path = path.to_path_buf();
            move |error| OpenError::Io { action, path, error }
        };
        // A replacement of the file takes its name, and the lock is beside it.
        let path = disk.resolve(path).map_err(failed_at(path, "follow the link"))?;
        let failed = |action| failed_at(&path, action);
        let lock = lock(disk, &path)?;
        let file = disk.open(&path, OpenMode::Create).map_err(failed("open"))?;
        let locked = LockedFile::lock(Arc::clone(&file));
        let locked = locked.map_err(|error| refusal(error, &path, &path))?;
        let mut reader = LogReader::of(Arc::clone(&file), path.clone())?;
        while let Some(chunk) = reader.next_chunk()? {
            read(Some(chunk))?;
        }
        read(None)?;
        let length = cut(&**disk, &*file, &reader, &path).map_err(failed("repair"))?;
        disk.sync_folder_of(&path).map_err(failed("sync the folder of"))?;
        // A file that was created just now has a header only.
        let lengths = (length, reader.base_length().max(record::HEADER_BYTES as u64));
        Ok(Log::start(Arc::clone(disk), path, locked, lengths, sync, lock)?)
    }

    fn start(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        file: LockedFile,
        (length, base_length): (u64, u64),
        sync: Sync,
        lock: FileLock,
    ) -> Result<Log, OpenError> {
        let shared = Arc::new(Shared {
            disk,
            path,
            queue: Mutex::default(),
            filled: Condvar::new(),
            sync: AtomicU8::new(sync as u8),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            length: AtomicU64::new(length),
            base_length: AtomicU64::new(base_length),
            replacements: AtomicU64::new(0),
            busy_since: AtomicU64::new(0),
            has_replacement: Arc::default(),
            is_failed: AtomicBool::new(false),
            failure: Mutex::default(),
            progress: Mutex::new(None),
        });
        let writer = Writer::new(Arc::clone(&shared), file, length);
        let thread = std::thread::Builder::new().name("key-log".to_owned());
        let thread = thread.spawn(move || writer.run()).map_err(|error| OpenError::Io {
            action: "start the writer of",
            path: shared.path.clone(),
            error,
        })?;
        Ok(Log { shared, thread: Mutex::new(Some(thread)), _lock: lock })
    }

    /// Has `progress` called whenever a position was reached, or a write has failed. By the writer:
    /// it must not block.
    pub fn on_progress(&self, progress: impl Fn() + Send + std::marker::Sync + 'static) {
        *self.shared.progress.lock() = Some(Arc::new(progress));
    }

    /// Appends a record, and returns the position to [wait for](Log::has_reached).
    pub fn append(&self, body: &[u8]) -> u64 {
        let mut queue = self.shared.queue.lock();
        let before = queue.bytes.len();
        record::write_record(&mut queue.bytes, body);
        queue.end += (queue.bytes.len() - before) as u64;
        let end = queue.end;
        drop(queue);
        if before == 0 {
            self.shared.filled.notify_one();
        }
        end
    }

    /// The position of the end of the last record.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.shared.queue.lock().end
    }

    /// Whether a position has got so far. Never true for positions that are not written, and never
    /// false again.
    #[must_use]
    pub fn has_reached(&self, position: u64, reached: Reached) -> bool {
        position <= self.reached(reached)
    }

    /// The position that has got so far.
    #[must_use]
    pub fn reached(&self, reached: Reached) -> u64 {
        match reached {
            Reached::Written => self.shared.written.load(Ordering::Acquire),
            Reached::Synced => self.shared.synced.load(Ordering::Acquire),
        }
    }

    /// For how long the writer has been busy with what it took last, or 0 if it waits for records.
    /// `now` and the answer are in milliseconds; the former since 1970.
    #[must_use]
    pub fn busy_time(&self, now: u64) -> u64 {
        match self.shared.busy_since.load(Ordering::Relaxed) {
            0 => 0,
            since => now.saturating_sub(since),
        }
    }

    /// When records are synced.
    #[must_use]
    pub fn sync(&self) -> Sync {
        self.shared.sync()
    }

    /// Changes when records are synced.
    pub fn set_sync(&self, sync: Sync) {
        self.shared.sync.store(sync as u8, Ordering::Relaxed);
        self.shared.filled.notify_one();
    }

    /// Why the last write failed, if it did. It is tried again until it succeeds.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        // The usual case takes no lock.
        let is_failed = self.shared.is_failed.load(Ordering::Acquire);
        is_failed.then(|| self.shared.failure.lock().clone())
    }

    /// Bytes of the file, and what they were when it was replaced last.
    #[must_use]
    pub fn lengths(&self) -> (u64, u64) {
        let shared = &self.shared;
        (shared.length.load(Ordering::Relaxed), shared.base_length.load(Ordering::Relaxed))
    }

    /// How often it was replaced since it was opened.
    #[must_use]
    pub fn replacements(&self) -> u64 {
        self.shared.replacements.load(Ordering::Relaxed)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Writes and syncs what was appended. What is appended later is not written.
    ///
    /// # Errors
    /// That did not succeed: what is not written now never will be.
    pub fn close(&self) -> Result<(), CloseError> {
        self.shared.queue.lock().is_stopped = true;
        self.shared.filled.notify_one();
        let Some(thread) = self.thread.lock().take() else { return Ok(()) };
        // The writer itself may drop the last owner of the log, when it tells of progress.
        let is_writer = thread.thread().id() == std::thread::current().id();
        if !is_writer && thread.join().is_err() {
            tracing::error!("the writer of the log of keys has panicked");
        }
        let Some(reason) = self.failure() else { return Ok(()) };
        let unwritten = self.end().saturating_sub(self.reached(Reached::Written));
        let unsynced = self.end().saturating_sub(self.reached(Reached::Synced));
        let bytes = if unwritten > 0 { unwritten } else { unsynced };
        Err(CloseError { path: self.shared.path.clone(), bytes, reason })
    }

    /// Begins a file that is to replace the log.
    ///
    /// # Errors
    /// It cannot be created, or [there is one](Log::has_replacement).
    pub fn begin_replacement(&self) -> io::Result<Replacement> {
        let Shared { disk, path, has_replacement, .. } = &*self.shared;
        Replacement::begin(Arc::clone(disk), path, has_replacement)
    }

    /// Whether a replacement was begun that has not taken the place of the log yet, and may still
    /// do so.
    #[must_use]
    pub fn has_replacement(&self) -> bool {
        self.shared.has_replacement.load(Ordering::Acquire)
    }

    /// Replaces the log. `last` are the last records of the replacement; with them it must mean
    /// what the log means up to now. Records that are appended later go to it. Returns the position
    /// at which it is in place. If that fails, the log stays, with all records.
    pub fn replace(&self, replacement: Replacement, last: &[Vec<u8>]) -> u64 {
        let mut frames = Vec::new();
        last.iter().for_each(|body| record::write_record(&mut frames, body));
        let mut queue = self.shared.queue.lock();
        let at = queue.bytes.len();
        // The writer of a closed log takes nothing any more: the replacement ends here then.
        queue.replacement = (!queue.is_stopped).then_some((replacement, frames, at));
        // A position of its own: what was appended before may be written already.
        queue.end += 1;
        let end = queue.end;
        drop(queue);
        self.shared.filled.notify_one();
        end
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!("{error}");
        }
    }
}

fn lock(disk: &Arc<dyn Disk>, path: &Path) -> Result<FileLock, OpenError> {
    let beside = with_suffix(path, ".lock");
    disk.lock(&beside).map_err(|error| refusal(error, path, &beside))
}

fn refusal(error: LockError, path: &Path, lock: &Path) -> OpenError {
    match error {
        LockError::Held { owner } => OpenError::Locked { path: path.to_path_buf(), owner },
        LockError::Io(error) => OpenError::Io { action: "lock", path: lock.to_path_buf(), error },
    }
}

/// Removes what is behind the sound records; the length then.
fn cut(disk: &dyn Disk, file: &dyn DiskFile, reader: &LogReader, path: &Path) -> io::Result<u64> {
    let (length, whole) = (reader.length(), reader.position());
    if whole == 0 {
        file.set_length(0)?;
        file.write_all_at(&record::header(), 0)?;
        file.sync()?;
        return Ok(record::HEADER_BYTES as u64);
    }
    if whole < length {
        let kept = match keep_end(disk, path, file, whole, length) {
            Ok(kept) => format!("they are in {}", kept.display()),
            // A write that filled the disk is often the reason for such an end.
            Err(error) if error.is_full() => "there was no space to keep them".to_owned(),
            Err(error) => return Err(error.source),
        };
        let (path, bytes) = (path.display(), length - whole);
        tracing::warn!(
            "the last write to {path} was cut off by a crash or a full disk: removed {bytes} bytes \
             behind byte {whole}, which were never acknowledged under 'always'; {kept}"
        );
        file.set_length(whole)?;
        file.sync()?;
    }
    Ok(whole)
}
