//! Fault injection: a disk that fails on demand, and can keep an image of what a crash leaves.
//!
//! A fault is named by a kind of operation and a number, such as "the third sync". A test repeats
//! its script with a failure of the first operation, the second, and so on. When the script runs
//! without meeting the fault, the failure was tested at every possible place.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    Disk, DiskFile, Entry, EntryKind, FileLock, FileStatus, LockError, MemoryDisk, OpenMode,
};

/// The kinds of operations that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opening a file in any mode.
    Open,
    /// Reading a file, or its identity and length.
    Read,
    /// Writing: the first half of the bytes is written before the error.
    Write,
    /// Syncing a file: nothing becomes durable.
    Sync,
    /// Truncating or extending a file.
    SetLength,
    /// Reserving space.
    Reserve,
    /// Renaming, linking or removing a file, creating or removing a folder, changing permissions,
    /// or syncing a folder.
    Folder,
}

/// A [`MemoryDisk`] with faults. Clones share files and faults.
#[derive(Clone)]
pub struct FaultyDisk {
    disk: MemoryDisk,
    state: Arc<Mutex<State>>,
}

/// The images that a crash at one moment would leave.
#[derive(Clone, Debug)]
pub struct CrashImage {
    /// The last step before the crash.
    pub after: Operation,
    /// After a power cut: only what was synced.
    pub power_cut: MemoryDisk,
    /// After a power cut that also loses all names that were not synced with their folder.
    pub names_lost: MemoryDisk,
    /// After a kill of the process: all that was written.
    pub kill: MemoryDisk,
}

#[derive(Default)]
struct State {
    counts: [u64; OPERATIONS],
    fault: Option<Fault>,
    call: Option<(Operation, Call)>,
    met: bool,
    images: Option<Vec<CrashImage>>,
    observer: Option<Observer>,
    read_bytes_max: Option<usize>,
    free_bytes: Option<u64>,
    forgets_failed_syncs: bool,
    /// One in so many non-blocking reads finds its bytes not in memory; 0: none does.
    cold_every: u64,
    resident_reads: u64,
}

type Call = Box<dyn FnOnce() + Send>;
type Observer = Box<dyn FnMut(Operation, &MemoryDisk) + Send>;

struct Fault {
    operation: Operation,
    /// The number of the operation that fails.
    at: u64,
    /// The number of operations that fail from then on.
    times: u64,
    error: io::ErrorKind,
}

const OPERATIONS: usize = Operation::Folder as usize + 1;

impl FaultyDisk {
    /// Creates a disk without faults.
    pub fn new(disk: MemoryDisk) -> FaultyDisk {
        FaultyDisk { disk, state: Arc::default() }
    }

    /// Makes the `nth` operation of that kind from now on (1: the next) fail, once.
    pub fn fail(&self, operation: Operation, nth: u64, error: io::ErrorKind) {
        self.fail_times(operation, nth, 1, error);
    }

    /// Makes the `nth` operation of that kind from now on fail, and all later ones, until the disk
    /// is [mended](FaultyDisk::mend).
    pub fn fail_from(&self, operation: Operation, nth: u64, error: io::ErrorKind) {
        self.fail_times(operation, nth, u64::MAX, error);
    }

    /// Makes `times` operations of that kind fail, beginning with the `nth` from now on.
    pub fn fail_times(&self, operation: Operation, nth: u64, times: u64, error: io::ErrorKind) {
        let mut state = self.state.lock();
        let at = state.counts[operation as usize] + nth;
        state.fault = Some(Fault { operation, at, times, error });
        state.met = false;
    }

    /// Limits each read to so many bytes, as if a signal had interrupted it.
    pub fn read_at_most(&self, bytes: usize) {
        self.state.lock().read_bytes_max = Some(bytes);
    }

    /// Says that so many bytes are free. As many can be written as before.
    pub fn claim_free(&self, bytes: u64) {
        self.state.lock().free_bytes = Some(bytes);
    }

    /// From now on, unwritten bytes are lost at a failed sync: what the device had before is read
    /// again, zeros where it had nothing, and no later sync brings them back.
    ///
    /// Linux may do that at any time: it marks pages that it could not write as clean, and drops
    /// them when it needs memory.
    pub fn forget_failed_syncs(&self) {
        self.state.lock().forgets_failed_syncs = true;
    }

    /// Removes all faults.
    pub fn mend(&self) {
        self.state.lock().fault = None;
    }

    /// Makes one in `every` non-blocking reads find its bytes not in memory; 0: none.
    pub fn forget_every(&self, every: u64) {
        self.state.lock().cold_every = every;
    }

    /// Calls `call` before the next operation of that kind, on its thread.
    ///
    /// A test can observe other threads meanwhile, or delay the operation.
    pub fn before_next(&self, operation: Operation, call: impl FnOnce() + Send + 'static) {
        self.state.lock().call = Some((operation, Box::new(call)));
    }

    /// Whether the fault has occurred.
    pub fn has_failed(&self) -> bool {
        self.state.lock().met
    }

    /// The number of operations of that kind so far, failed ones included.
    pub fn count(&self, operation: Operation) -> u64 {
        self.state.lock().counts[operation as usize]
    }

    /// Keeps an image of the disk after each further operation that changes it.
    pub fn keep_images(&self) {
        self.state.lock().images = Some(Vec::new());
    }

    /// The images kept so far, oldest first.
    pub fn images(&self) -> Vec<CrashImage> {
        self.state.lock().images.clone().unwrap_or_default()
    }

    /// Calls `observer` after each further operation that changes the disk, or fails to.
    ///
    /// It can look at what a crash at this moment would leave. It is not called for its own
    /// operations.
    pub fn after_each(&self, observer: impl FnMut(Operation, &MemoryDisk) + Send + 'static) {
        self.state.lock().observer = Some(Box::new(observer));
    }

    /// The files themselves, without faults.
    pub fn files(&self) -> &MemoryDisk {
        &self.disk
    }

    /// Counts an operation; gives the error if a fault is set for it.
    fn enter(&self, operation: Operation) -> io::Result<()> {
        let call = self.state.lock().call.take_if(|(awaited, _)| *awaited == operation);
        if let Some((_, call)) = call {
            call();
        }
        let mut state = self.state.lock();
        state.counts[operation as usize] += 1;
        let count = state.counts[operation as usize];
        match &state.fault {
            Some(fault)
                if fault.operation == operation
                    && count.checked_sub(fault.at).is_some_and(|past| past < fault.times) =>
            {
                let error = fault.error.into();
                state.met = true;
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Whether a non-blocking read finds its bytes not in memory.
    fn is_cold(&self) -> bool {
        let mut state = self.state.lock();
        state.resident_reads += 1;
        state.cold_every > 0 && state.resident_reads.is_multiple_of(state.cold_every)
    }

    fn leave(&self, after: Operation) {
        // Called without the lock: it may use this disk.
        let observer = self.state.lock().observer.take();
        if let Some(mut observer) = observer {
            observer(after, &self.disk);
            self.state.lock().observer.get_or_insert(observer);
        }
        if let Some(images) = &mut self.state.lock().images {
            images.push(CrashImage {
                after,
                power_cut: self.disk.after_power_cut(),
                names_lost: self.disk.after_power_cut_with_names_lost(),
                kill: self.disk.after_kill(),
            });
        }
    }

    /// Performs an operation that changes the disk wholly or not at all.
    fn change<T>(
        &self,
        operation: Operation,
        change: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let result = self.enter(operation).and_then(|()| change());
        self.leave(operation);
        result
    }
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyDisk").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl Disk for FaultyDisk {
    fn boot(&self) -> Option<u64> {
        self.disk.boot()
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.change(Operation::Open, || self.disk.open(path, mode))?;
        Ok(Arc::new(FaultyFile { file, disk: self.clone(), unsynced: Mutex::default() }))
    }

    fn temporary(&self, near: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.change(Operation::Open, || self.disk.temporary(near))?;
        Ok(Arc::new(FaultyFile { file, disk: self.clone(), unsynced: Mutex::default() }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        self.disk.kind(path)
    }

    fn free_bytes(&self, _: &Path) -> Option<u64> {
        self.state.lock().free_bytes
    }

    fn status(&self, path: &Path) -> io::Result<Option<FileStatus>> {
        self.enter(Operation::Read)?;
        self.disk.status(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        self.disk.list(folder)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.disk.resolve(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<bool> {
        self.change(Operation::Folder, || self.disk.create_folder(path))
    }

    fn remove_folder(&self, path: &Path) -> io::Result<bool> {
        self.change(Operation::Folder, || self.disk.remove_folder(path))
    }

    fn move_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(Operation::Folder, || self.disk.move_file(from, to))
    }

    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        self.change(Operation::Folder, || self.disk.set_read_only(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        // In two steps, as on a real disk: a rename can be done and yet not be durable.
        self.change(Operation::Folder, || self.disk.move_file(from, to))?;
        self.change(Operation::Folder, || self.disk.sync_folder_of(to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(Operation::Folder, || self.disk.link(from, to))
    }

    fn copy_permissions(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(Operation::Folder, || self.disk.copy_permissions(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(Operation::Folder, || self.disk.remove(path))
    }

    fn sync_folder_of(&self, path: &Path) -> io::Result<()> {
        self.change(Operation::Folder, || self.disk.sync_folder_of(path))
    }

    fn lock(&self, path: &Path) -> Result<FileLock, LockError> {
        self.disk.lock(path)
    }
}

#[derive(Debug)]
struct FaultyFile {
    file: Arc<dyn DiskFile>,
    disk: FaultyDisk,
    /// What stood where this handle has written since its last sync: places, and the bytes before.
    unsynced: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl FaultyFile {
    /// Replaces unsynced bytes by those that the device has: the ones before, or zeros.
    fn forget_unsynced(&self) -> io::Result<()> {
        let unsynced = std::mem::take(&mut *self.unsynced.lock());
        let length = self.file.length()?;
        for (start, mut before) in unsynced.into_iter().rev() {
            let count = length.saturating_sub(start).min(before.len() as u64);
            before.truncate(usize::try_from(count).unwrap_or_default());
            self.file.write_all_at(&before, start)?;
        }
        Ok(())
    }

    /// Remembers the bytes in a range that is about to be written.
    fn note_unsynced(&self, start: u64, count: usize) -> io::Result<()> {
        let mut before = vec![0; count];
        self.file.read_up_to(&mut before, start)?;
        self.unsynced.lock().push((start, before));
        Ok(())
    }

    /// The part of a buffer that one read may fill.
    fn readable<'a>(&self, buffer: &'a mut [u8]) -> &'a mut [u8] {
        let most = self.disk.state.lock().read_bytes_max.unwrap_or(usize::MAX);
        let count = buffer.len().min(most);
        &mut buffer[..count]
    }
}

impl DiskFile for FaultyFile {
    fn status(&self) -> io::Result<FileStatus> {
        self.disk.enter(Operation::Read)?;
        self.file.status()
    }

    fn lock(&self) -> Result<FileLock, LockError> {
        self.file.lock()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.disk.enter(Operation::Read)?;
        self.file.read_at(self.readable(buffer), position)
    }

    fn read_resident_at(&self, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>> {
        if self.disk.is_cold() {
            return Ok(None);
        }
        self.disk.enter(Operation::Read)?;
        self.file.read_resident_at(self.readable(buffer), position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if self.disk.state.lock().forgets_failed_syncs {
            self.note_unsynced(position, bytes.len())?;
        }
        let result = match self.disk.enter(Operation::Write) {
            Ok(()) => self.file.write_all_at(bytes, position),
            Err(error) => {
                self.file.write_all_at(&bytes[..bytes.len() / 2], position).and(Err(error))
            }
        };
        self.disk.leave(Operation::Write);
        result
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.disk.change(Operation::Sync, || self.file.sync());
        if synced.is_ok() {
            self.unsynced.lock().clear();
        } else if self.disk.state.lock().forgets_failed_syncs {
            self.forget_unsynced()?;
        }
        synced
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.disk.change(Operation::SetLength, || self.file.set_length(length))
    }

    fn reserve(&self, start: u64, end: u64) -> io::Result<()> {
        self.disk.change(Operation::Reserve, || self.file.reserve(start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_named_fails_and_no_other() {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let path = Path::new("f");
        let file = disk.open(path, OpenMode::Create).unwrap();
        disk.fail(Operation::Write, 2, io::ErrorKind::StorageFull);
        file.write_all_at(b"ab", 0).unwrap();
        file.sync().unwrap();
        assert!(!disk.has_failed());
        let error = file.write_all_at(b"cdef", 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(disk.has_failed());
        assert_eq!(disk.files().bytes(path).unwrap(), b"abcd");
        file.write_all_at(b"ef", 4).unwrap();
        assert_eq!(disk.count(Operation::Write), 3);
    }

    #[test]
    fn a_failed_sync_makes_nothing_durable() {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let path = Path::new("f");
        let file = disk.open(path, OpenMode::Create).unwrap();
        file.write_all_at(b"ab", 0).unwrap();
        disk.fail(Operation::Sync, 1, io::ErrorKind::Other);
        file.sync().unwrap_err();
        assert_eq!(disk.files().after_power_cut().bytes(path).unwrap(), b"");
    }

    #[test]
    fn a_lasting_fault_ends_when_the_disk_is_mended() {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let file = disk.open(Path::new("f"), OpenMode::Create).unwrap();
        disk.fail_from(Operation::Sync, 2, io::ErrorKind::Other);
        file.sync().unwrap();
        file.sync().unwrap_err();
        file.sync().unwrap_err();
        disk.mend();
        file.sync().unwrap();
    }

    #[test]
    fn what_a_failed_sync_left_is_not_brought_back_by_the_next() {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let path = Path::new("f");
        let file = disk.open(path, OpenMode::Create).unwrap();
        file.write_all_at(b"ab", 0).unwrap();
        file.sync().unwrap();
        disk.forget_failed_syncs();
        file.write_all_at(b"XcY", 1).unwrap();
        file.write_all_at(b"Zd", 2).unwrap();
        disk.fail(Operation::Sync, 1, io::ErrorKind::Other);
        file.sync().unwrap_err();
        assert_eq!(disk.files().bytes(path).unwrap(), b"ab\0\0");
        file.sync().unwrap();
        assert_eq!(disk.files().after_power_cut().bytes(path).unwrap(), b"ab\0\0");
    }

    #[test]
    fn a_reading_brings_no_more_than_it_may() {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let file = disk.open(Path::new("f"), OpenMode::Create).unwrap();
        file.write_all_at(b"abcd", 0).unwrap();
        disk.read_at_most(3);
        let mut buffer = [0; 4];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 3);
        file.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"abcd");
    }

    #[test]
    fn a_call_comes_once_before_the_operation() {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let path = Path::new("f");
        let file = disk.open(path, OpenMode::Create).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (disk_then, seen_then) = (disk.clone(), Arc::clone(&seen));
        disk.before_next(Operation::Sync, move || {
            seen_then.lock().push(disk_then.files().bytes(path).unwrap());
        });
        file.write_all_at(b"ab", 0).unwrap();
        file.sync().unwrap();
        file.sync().unwrap();
        assert_eq!(*seen.lock(), [b"ab"]);
    }

    #[test]
    fn images_show_the_disk_after_each_step() {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let path = Path::new("f");
        let file = disk.open(path, OpenMode::Create).unwrap();
        disk.keep_images();
        file.write_all_at(b"ab", 0).unwrap();
        file.sync().unwrap();
        let images = disk.images();
        let steps: Vec<_> = images.iter().map(|image| image.after).collect();
        assert_eq!(steps, [Operation::Write, Operation::Sync]);
        assert_eq!(images[0].power_cut.bytes(path).unwrap(), b"");
        assert_eq!(images[0].kill.bytes(path).unwrap(), b"ab");
        assert_eq!(images[1].power_cut.bytes(path).unwrap(), b"ab");
    }
}
