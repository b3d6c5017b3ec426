//! The file in which a cache outlives its process.
//!
//! Key decision: the whole cache is written to a new file, which is then renamed over the old one.
//! A process killed at any moment leaves the old file or the new one. Nothing is synced: a file
//! damaged by a power cut fails its checksum, which costs only the time to load again.

use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thiserror::Error;
use tracing::{info, warn};
use zodium_disk::{Disk, FileLock, FileStream, LockError, OpenMode, with_suffix};
use zodium_types::Tid;

use super::{Cache, saved};

/// Least time between two saves.
const SAVE_EVERY: Duration = Duration::from_secs(300);
/// Saving may take at most one part in this many of the time.
const SAVE_TIME_SHARE: u32 = 50;
/// Size of the buffer for reading and writing.
const WINDOW_BYTES: usize = 256 << 10;

/// A file that keeps a cache from one run to the next, locked against other processes.
#[derive(Debug)]
pub struct CacheFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    source: String,
    /// Locked while saving, so that there is one save at a time.
    saved: Mutex<Saved>,
    _lock: FileLock,
}

/// Why a cache cannot be kept in the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CacheFileError {
    /// Another process uses this file for its cache.
    #[error(
        "{} is in use by {}: a cache of its own needs a path of its own",
        path.display(),
        owner.map_or("another process".to_owned(), |owner| format!("process {owner}"))
    )]
    InUse {
        /// The file of the cache.
        path: PathBuf,
        /// Process id of the user, if known.
        owner: Option<u32>,
    },
    /// The lock file cannot be locked.
    #[error("cannot lock {}: {reason}", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
}

/// State of the cache when it was last saved, and when the next save is due.
#[derive(Debug)]
struct Saved {
    next: Instant,
    content: Content,
}

/// Tells two states of a cache apart: last transaction, misses, evictions, objects.
type Content = (Tid, u64, u64, usize);

impl CacheFile {
    /// Locks the file for the lifetime of the result, and fills an empty cache from it.
    ///
    /// `source` names the storage and its servers. A file with another source, or of another
    /// version, is ignored and replaced by the next save; a damaged file is renamed to `*.damaged`.
    pub fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        source: String,
        cache: &Cache,
    ) -> Result<CacheFile, CacheFileError> {
        let lock_path = with_suffix(path, ".lock");
        let lock = disk.lock(&lock_path).map_err(|error| match error {
            LockError::Held { owner } => CacheFileError::InUse { path: path.to_owned(), owner },
            LockError::Io(reason) => CacheFileError::Lock { path: lock_path, reason },
        })?;
        restore(&*disk, path, &source, cache);
        let saved = Saved { next: Instant::now() + SAVE_EVERY, content: content(cache) };
        let saved = Mutex::new(saved);
        Ok(CacheFile { disk, path: path.to_owned(), source, saved, _lock: lock })
    }

    /// Changes the source of the cache, for example to other servers of the same storage.
    pub fn set_source(&mut self, source: String) {
        self.source = source;
    }

    /// Saves the cache if it has changed since the last save.
    pub fn save(&self, cache: &Cache) -> io::Result<()> {
        let mut saved = self.saved.lock();
        let content = content(cache);
        if content == saved.content || cache.last_tid() == Tid::ZERO {
            return Ok(());
        }
        let started = Instant::now();
        let result = self.write(cache);
        saved.next = Instant::now() + pause_after(started.elapsed());
        if result.is_ok() {
            saved.content = content;
        }
        result
    }

    /// Saves the cache if a save is due.
    pub fn save_if_due(&self, cache: &Cache) -> io::Result<()> {
        let is_due = Instant::now() >= self.saved.lock().next;
        if is_due { self.save(cache) } else { Ok(()) }
    }

    fn write(&self, cache: &Cache) -> io::Result<()> {
        let new_path = with_suffix(&self.path, ".new");
        let snapshot = cache.snapshot();
        let file = self.disk.open(&new_path, OpenMode::Truncate)?;
        let stream = FileStream::new(&*file);
        let mut output = BufWriter::with_capacity(WINDOW_BYTES, stream);
        let written = saved::write(&mut output, &self.source, &snapshot);
        let written = written.and_then(|()| output.flush());
        let result = written.and_then(|()| self.disk.move_file(&new_path, &self.path));
        if result.is_err() {
            // A partial file would only take space. The first error is returned, not this one.
            let _ = self.disk.remove(&new_path);
        }
        result
    }
}

/// Least time between a save that took so long and the next one.
fn pause_after(save: Duration) -> Duration {
    SAVE_EVERY.max(save * SAVE_TIME_SHARE)
}

fn content(cache: &Cache) -> Content {
    let metrics = cache.metrics();
    (cache.last_tid(), metrics.misses, metrics.evictions, metrics.objects)
}

/// Fills a cache from a file; leaves it empty if the file is unusable.
fn restore(disk: &dyn Disk, path: &Path, source: &str, cache: &Cache) {
    let file = match disk.open(path, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        file => file,
    };
    let stream = cache.begin_stream();
    let read = file.and_then(|file| Ok((file.length()?, file))).map_err(Into::into);
    let last_tid = read.and_then(|(length, file)| {
        let input = FileStream::new(&*file);
        let input = BufReader::with_capacity(WINDOW_BYTES, input);
        saved::read(input, length, source, |oid, revision| {
            cache.insert_revision(stream, oid, revision);
        })
    });
    match last_tid {
        Ok(last_tid) => {
            cache.verified(stream, last_tid, []);
            let objects = cache.metrics().objects;
            info!(path = %path.display(), objects, %last_tid, "cache read");
        }
        Err(useless) => {
            cache.clear(stream, Tid::ZERO);
            let set_aside = match useless {
                saved::Useless::Damaged(_) => set_aside(disk, path),
                _ => None,
            };
            let set_aside = set_aside.as_deref().map(Path::display).map(tracing::field::display);
            warn!(path = %path.display(), %useless, set_aside, "the saved cache is not used");
        }
    }
}

/// Renames a damaged file for inspection, replacing an earlier one; returns the new path.
fn set_aside(disk: &dyn Disk, path: &Path) -> Option<PathBuf> {
    let aside = with_suffix(path, ".damaged");
    let moved = disk.move_file(path, &aside);
    moved.inspect_err(|error| warn!(%error, "cannot set the damaged cache aside")).ok()?;
    Some(aside)
}

#[cfg(test)]
mod tests {
    use zodium_disk::{FaultyDisk, MemoryDisk, Operation, RealDisk};
    use zodium_types::Oid;

    use super::*;
    use crate::warnings::warnings_of;

    const PATH: &str = "cache";
    const SOURCE: &str = "storage 1 of localhost:8100";

    /// Objects 0 up to 99 as transaction `tid` wrote them, and their revisions before.
    fn filled(tid: u64) -> Cache {
        let cache = Cache::new(1 << 20);
        let stream = cache.begin_stream();
        for oid in 0..100 {
            let (serial, data) = (Tid(tid), format!("{oid} by {tid}").repeat(oid as usize));
            cache.insert(stream, Oid(oid), Tid(1), Some(serial), b"first");
            cache.insert(stream, Oid(oid), serial, None, data.as_bytes());
        }
        cache.verified(stream, Tid(tid + 1), []);
        cache
    }

    fn restored(disk: &dyn Disk) -> Cache {
        let cache = Cache::new(1 << 20);
        restore(disk, Path::new(PATH), SOURCE, &cache);
        cache
    }

    fn open(disk: &Arc<dyn Disk>, cache: &Cache) -> CacheFile {
        CacheFile::open(Arc::clone(disk), Path::new(PATH), SOURCE.to_owned(), cache).unwrap()
    }

    fn assert_same(left: &Cache, right: &Cache) {
        assert_eq!(left.last_tid(), right.last_tid());
        assert_eq!(left.metrics().objects, right.metrics().objects);
        for oid in (0..101).map(Oid) {
            assert_eq!(left.lookup(oid, Tid::MAX), right.lookup(oid, Tid::MAX));
            assert_eq!(left.lookup(oid, Tid(2)), right.lookup(oid, Tid(2)));
        }
    }

    #[test]
    fn what_was_saved_is_there_in_the_next_run() {
        let memory = MemoryDisk::volatile();
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let cache = filled(5);
        open(&disk, &Cache::new(1 << 20)).save(&cache).unwrap();
        let next = Cache::new(1 << 20);
        let file = open(&disk, &next);
        assert_same(&cache, &next);
        assert_eq!(next.metrics().objects, 100);
        // Only lookups have happened since, so nothing is written.
        let before = memory.bytes(Path::new(PATH));
        memory.put(Path::new(PATH), Vec::new());
        file.saved.lock().content = content(&next);
        file.save(&next).unwrap();
        file.save_if_due(&next).unwrap();
        assert_eq!(memory.bytes(Path::new(PATH)), Some(Vec::new()));
        assert!(before.is_some());
    }

    #[test]
    fn a_changed_cache_is_saved_when_that_is_due_and_a_failed_save_is_not_repeated_at_once() {
        let disk = FaultyDisk::new(MemoryDisk::volatile());
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let cache = Cache::new(1 << 20);
        let file = open(&shared, &cache);
        let stream = cache.begin_stream();
        cache.insert(stream, Oid(1), Tid(5), None, b"data");
        cache.verified(stream, Tid(6), []);
        file.save_if_due(&cache).unwrap();
        assert_eq!(disk.files().bytes(Path::new(PATH)), None, "it is too early");
        let make_due = || file.saved.lock().next = Instant::now();
        make_due();
        disk.fail(Operation::Write, 1, io::ErrorKind::StorageFull);
        assert!(file.save_if_due(&cache).is_err());
        file.save_if_due(&cache).unwrap();
        assert_eq!(disk.files().bytes(Path::new(PATH)), None, "it is too early again");
        make_due();
        file.save_if_due(&cache).unwrap();
        assert_same(&restored(disk.files()), &cache);
    }

    #[test]
    fn a_file_of_something_else_or_with_any_byte_changed_or_cut_off_is_not_used() {
        let memory = MemoryDisk::volatile();
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        open(&disk, &Cache::new(1 << 20)).save(&filled(5)).unwrap();
        let good = memory.bytes(Path::new(PATH)).unwrap();
        assert!(!restored(&memory).is_empty());
        let is_used = |bytes: &[u8]| {
            memory.put(Path::new(PATH), bytes.to_vec());
            let cache = restored(&memory);
            !cache.is_empty() || cache.last_tid() != Tid::ZERO
        };
        for at in 0..good.len() {
            if at < 600 || at % 97 == 0 || at + 20 > good.len() {
                let mut bad = good.clone();
                bad[at] ^= 1;
                assert!(!is_used(&bad), "byte {at}");
                assert!(!is_used(&good[..at]), "up to {at}");
            }
        }
        assert!(!is_used(&[&good[..], b"\0"].concat()));
        let other = Cache::new(1 << 20);
        memory.put(Path::new(PATH), good);
        restore(&memory, Path::new(PATH), "storage 2 of localhost:8100", &other);
        assert!(other.is_empty());
    }

    #[test]
    fn a_damaged_file_is_set_aside_whole_and_one_of_another_storage_or_version_stays() {
        let memory = MemoryDisk::volatile();
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        open(&disk, &Cache::new(1 << 20)).save(&filled(5)).unwrap();
        let good = memory.bytes(Path::new(PATH)).unwrap();
        let aside = with_suffix(Path::new(PATH), ".damaged");
        restore(&memory, Path::new(PATH), "storage 2 of localhost:8100", &Cache::new(1 << 20));
        assert_eq!(memory.bytes(Path::new(PATH)).as_ref(), Some(&good));
        assert_eq!(memory.bytes(&aside), None);
        let other_version = [b"zodiumC2", &good[8..]].concat();
        memory.put(Path::new(PATH), other_version.clone());
        assert!(restored(&memory).is_empty());
        assert_eq!(memory.bytes(Path::new(PATH)), Some(other_version));
        assert_eq!(memory.bytes(&aside), None);
        // The second one replaces the first.
        for length in [good.len() / 2, good.len() - 1] {
            memory.put(Path::new(PATH), good[..length].to_vec());
            assert!(restored(&memory).is_empty());
            assert_eq!(memory.bytes(Path::new(PATH)), None);
            assert_eq!(memory.bytes(&aside).as_deref(), Some(&good[..length]));
        }
    }

    #[test]
    fn a_crash_at_any_moment_leaves_the_old_cache_or_the_new_one() {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let (old, new) = (filled(5), filled(9));
        open(&shared, &Cache::new(1 << 20)).save(&old).unwrap();
        disk.keep_images();
        open(&shared, &Cache::new(1 << 20)).save(&new).unwrap();
        let images = disk.images();
        assert!(images.len() >= 3, "{} steps", images.len());
        for image in images {
            let found = restored(&image.kill);
            let expected = if found.last_tid() == old.last_tid() { &old } else { &new };
            assert_same(&found, expected);
            for image in [image.power_cut, image.names_lost] {
                let found = restored(&image);
                assert!(found.is_empty() || found.last_tid() >= old.last_tid());
            }
        }
    }

    #[test]
    fn a_file_of_a_source_with_a_longer_name_than_any_has_is_not_used() {
        let memory = MemoryDisk::volatile();
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        for (length, is_used) in [(64 << 10, true), ((64 << 10) + 1, false)] {
            let source = "s".repeat(length);
            let path = Path::new(PATH);
            let empty = Cache::new(1 << 20);
            let file = CacheFile::open(Arc::clone(&disk), path, source.clone(), &empty).unwrap();
            file.save(&filled(5)).unwrap();
            let cache = Cache::new(1 << 20);
            restore(&memory, path, &source, &cache);
            assert_eq!(!cache.is_empty(), is_used, "{length} bytes");
        }
    }

    #[test]
    fn a_file_that_is_not_there_yet_is_no_warning_and_one_that_cannot_be_read_is() {
        let disk = FaultyDisk::new(MemoryDisk::volatile());
        assert_eq!(warnings_of(|| assert!(restored(&disk).is_empty())), 0);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        open(&shared, &Cache::new(1 << 20)).save(&filled(5)).unwrap();
        assert_eq!(warnings_of(|| assert!(!restored(&disk).is_empty())), 0);
        disk.fail(Operation::Open, 1, io::ErrorKind::PermissionDenied);
        assert_eq!(warnings_of(|| assert!(restored(&disk).is_empty())), 1);
        disk.mend();
        assert!(!restored(&disk).is_empty(), "it is not set aside");
    }

    #[test]
    fn saving_takes_a_fiftieth_of_the_time_at_most() {
        let seconds = Duration::from_secs;
        for (save, pause) in [(0, 300), (6, 300), (7, 350), (60, 3000)] {
            assert_eq!(pause_after(seconds(save)), seconds(pause), "{save} s");
        }
    }

    #[test]
    fn a_failed_saving_leaves_the_old_cache() {
        for operation in [Operation::Open, Operation::Write, Operation::Folder] {
            let disk = FaultyDisk::new(MemoryDisk::volatile());
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            let file = open(&shared, &Cache::new(1 << 20));
            file.save(&filled(5)).unwrap();
            disk.fail(operation, 1, io::ErrorKind::StorageFull);
            assert!(file.save(&filled(9)).is_err(), "{operation:?}");
            disk.mend();
            assert_same(&restored(disk.files()), &filled(5));
            file.save(&filled(9)).unwrap();
            assert_same(&restored(disk.files()), &filled(9));
        }
    }

    #[test]
    fn a_second_process_is_told_that_the_file_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let open =
            || CacheFile::open(Arc::new(RealDisk), &path, SOURCE.to_owned(), &Cache::new(1 << 20));
        let first = open().unwrap();
        let refused = open().unwrap_err();
        let owner = format!("in use by process {}", std::process::id());
        assert!(refused.to_string().contains(&owner), "{refused}");
        drop(first);
        open().unwrap();
    }
}
