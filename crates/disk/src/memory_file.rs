//! A file of a disk in memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::chunks::Chunks;
use crate::power_cut::{Choose, PowerCut, TORN_BYTES};
use crate::{DiskFile, FileIdentity, FileLock, FileStatus, LockError};

/// The space of a disk. Lock order: contents of a file first, then this.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Most bytes that all files together may hold, if limited.
    pub(crate) capacity: Option<u64>,
    pub(crate) used: u64,
    /// Files created so far; the number of each is its inode.
    pub(crate) files: u64,
}

impl Space {
    /// Allocates the inode number of a new file.
    fn next_inode(&mut self) -> u64 {
        self.files += 1;
        self.files
    }
}

#[derive(Debug)]
pub(crate) struct MemoryFile {
    contents: RwLock<Contents>,
    space: Arc<Mutex<Space>>,
    inode: u64,
    /// Whether its lock is held; shared with that lock.
    locked: Arc<AtomicBool>,
}

/// The lock on a file.
#[derive(Debug)]
struct MemoryLock(Arc<AtomicBool>);

impl Drop for MemoryLock {
    fn drop(&mut self) {
        // Release pairs with the Acquire of the next holder.
        self.0.store(false, Ordering::Release);
    }
}

#[derive(Debug)]
struct Contents {
    live: Chunks,
    /// The bytes at the last sync, if they are kept.
    synced: Option<Chunks>,
    /// Length of the prefix in which both are the same.
    clean: usize,
    /// The least length since the last sync; bytes behind it may be lost.
    shortest: usize,
    /// Bytes of disk space that the file takes: its length, or more after a reservation.
    allocated: u64,
}

impl MemoryFile {
    /// Creates an empty file. With `remembers` it keeps its synced bytes.
    pub(crate) fn new(space: &Arc<Mutex<Space>>, remembers: bool) -> MemoryFile {
        let synced = remembers.then(Chunks::default);
        let live = Chunks::default();
        let contents = Contents { live, synced, clean: 0, shortest: 0, allocated: 0 };
        let inode = space.lock().next_inode();
        let (contents, locked) = (RwLock::new(contents), Arc::default());
        MemoryFile { contents, space: Arc::clone(space), inode, locked }
    }

    /// Creates a file with these bytes, as if they had been written and synced.
    pub(crate) fn with_bytes(space: &Arc<Mutex<Space>>, bytes: Chunks) -> MemoryFile {
        let inode = space.lock().next_inode();
        MemoryFile::restored(space, bytes, inode)
    }

    /// Creates the image of an earlier file after a crash.
    pub(crate) fn restored(space: &Arc<Mutex<Space>>, bytes: Chunks, inode: u64) -> MemoryFile {
        let (length, allocated) = (bytes.len(), bytes.len() as u64);
        space.lock().used += allocated;
        let contents = Contents {
            live: bytes.clone(),
            synced: Some(bytes),
            clean: length,
            shortest: length,
            allocated,
        };
        let (contents, locked) = (RwLock::new(contents), Arc::default());
        MemoryFile { contents, space: Arc::clone(space), inode, locked }
    }

    /// Its inode number.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// The current bytes.
    pub(crate) fn live(&self) -> Chunks {
        self.contents.read().live.clone()
    }

    /// The bytes at the last sync; empty if they are not kept.
    pub(crate) fn synced(&self) -> Chunks {
        self.contents.read().synced.clone().unwrap_or_default()
    }

    /// The bytes that a power cut leaves.
    pub(crate) fn after_power_cut(&self, cut: &PowerCut, choose: Choose<'_>) -> Chunks {
        let contents = self.contents.read();
        let Contents { live, synced: Some(synced), .. } = &*contents else {
            return Chunks::default();
        };
        let mut left = synced.clone();
        left.resize(synced.len().max(live.len()));
        if contents.shortest < synced.len() && choose(2) == 1 {
            // The truncation is durable, later writes behind it are not.
            left.resize(contents.shortest);
            left.resize(synced.len().max(live.len()));
        }
        let changed = contents.changed_pieces(cut.piece_bytes);
        let survives = cut.pieces.choose(changed.len(), choose);
        let torn = choose(changed.len().max(1) as u64) as usize;
        let mut piece = vec![0; cut.piece_bytes];
        for (number, (start, survives)) in changed.into_iter().zip(survives).enumerate() {
            let count = live.read(&mut piece, start);
            let kept = match (cut.tears_a_piece && number == torn, survives) {
                (true, _) => choose((count / TORN_BYTES) as u64 + 1) as usize * TORN_BYTES,
                (false, true) => count,
                (false, false) => continue,
            };
            left.write(&piece[..kept], start);
        }
        left.resize(cut.length.choose(synced.len(), live.len(), choose));
        left
    }

    /// Releases the space of a file that has no name any more and is not open.
    pub(crate) fn give_space_back(&self) {
        let mut contents = self.contents.write();
        self.space.lock().used -= std::mem::take(&mut contents.allocated);
    }

    /// Allocates the space up to `end`, or none of it.
    fn allocate(&self, contents: &mut Contents, end: u64) -> io::Result<()> {
        let wanted = end.saturating_sub(contents.allocated);
        let mut space = self.space.lock();
        if wanted > 0 && space.capacity.is_some_and(|capacity| space.used + wanted > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        space.used += wanted;
        contents.allocated += wanted;
        Ok(())
    }
}

impl Contents {
    /// The positions of the pieces that have changed since the last sync.
    fn changed_pieces(&self, piece_bytes: usize) -> Vec<usize> {
        let Some(synced) = &self.synced else { return Vec::new() };
        let (mut new, mut old) = (vec![0; piece_bytes], vec![0; piece_bytes]);
        let first = self.clean / piece_bytes * piece_bytes;
        let mut changed = |start: &usize| {
            let count = self.live.read(&mut new, *start);
            old.fill(0);
            synced.read(&mut old, *start);
            new[..count] != old[..count]
        };
        (first..self.live.len()).step_by(piece_bytes).filter(|start| changed(start)).collect()
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.space.lock().used -= self.contents.get_mut().allocated;
    }
}

impl DiskFile for MemoryFile {
    fn status(&self) -> io::Result<FileStatus> {
        // There is only one disk in memory, so one device number is enough.
        let identity = FileIdentity { device: 0, inode: self.inode };
        Ok(FileStatus { identity, length: self.contents.read().live.len() as u64, modified: 0 })
    }

    fn lock(&self) -> Result<FileLock, LockError> {
        if self.locked.swap(true, Ordering::Acquire) {
            return Err(LockError::Held { owner: None });
        }
        Ok(FileLock { _held: Box::new(MemoryLock(Arc::clone(&self.locked))) })
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let start = usize::try_from(position).unwrap_or(usize::MAX);
        Ok(self.contents.read().live.read(buffer, start))
    }

    fn read_resident_at(&self, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>> {
        self.read_at(buffer, position).map(Some)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let end = position + bytes.len() as u64;
        let mut contents = self.contents.write();
        self.allocate(&mut contents, end)?;
        let (start, _) = (as_index(position)?, as_index(end)?);
        contents.live.write(bytes, start);
        contents.clean = contents.clean.min(start);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let Contents { live, synced, clean, shortest, .. } = &mut *self.contents.write();
        if let Some(synced) = synced {
            synced.copy_from(live, *clean);
        }
        *clean = live.len();
        *shortest = live.len();
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut contents = self.contents.write();
        self.allocate(&mut contents, length)?;
        self.space.lock().used -= contents.allocated - length;
        contents.allocated = length;
        let length = as_index(length)?;
        contents.clean = contents.clean.min(contents.live.len()).min(length);
        contents.shortest = contents.shortest.min(length);
        contents.live.resize(length);
        Ok(())
    }

    fn reserve(&self, _start: u64, end: u64) -> io::Result<()> {
        self.allocate(&mut self.contents.write(), end)
    }
}

fn as_index(position: u64) -> io::Result<usize> {
    usize::try_from(position).map_err(|_| io::ErrorKind::FileTooLarge.into())
}
