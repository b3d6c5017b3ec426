//! The blobs of one voted transaction: each in the folder of its object, synced, one rename away
//! from being committed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use zodium_disk::{Disk, DiskFile, OpenMode};
use zodium_types::{Oid, Tid};

use crate::cleaner::{Cleaner, Refuse};
use crate::fingerprint::{COPY_BYTES, Fingerprint};
use crate::intent::{self, INTENT_SUFFIX};
use crate::layout::{self, TEMPORARY_FOLDER};
use crate::sums::Sums;
use crate::{BlobDirectory, BlobError, TemporaryBlob};

/// Folders synced at once.
const SYNC_THREADS_MAX: usize = 16;

/// What becomes the blob of an object.
#[derive(Clone, Copy, Debug)]
pub enum NewBlob<'a> {
    /// What a client sent.
    Sent(&'a TemporaryBlob),
    /// The same as this transaction's.
    SameAs(Tid),
}

impl NewBlob<'_> {
    /// Space that it needs.
    fn bytes(&self) -> u64 {
        match self {
            NewBlob::Sent(blob) => blob.length(),
            NewBlob::SameAs(_) => 0,
        }
    }
}

/// Blobs that can be committed. Dropped before, they are gone.
#[derive(Debug)]
pub struct StagedBlobs {
    disk: Arc<dyn Disk>,
    cleaner: Arc<Cleaner>,
    sums: Arc<Sums>,
    intent: PathBuf,
    /// Their files.
    blobs: Vec<PathBuf>,
    /// What is recorded of them when they are committed.
    fingerprints: Vec<(Oid, Fingerprint)>,
    /// The transaction whose names they have.
    tid: Option<Tid>,
    /// A folder's sync failed, so a later one proves nothing: the next opening looks again.
    is_doubtful: bool,
    is_left: bool,
}

impl BlobDirectory {
    /// Puts blobs into the folders of their objects, as the last step of a vote but the space in
    /// the log, whose last transaction is `after`. Blocking, for as long as it takes to sync them.
    /// Each object may come once.
    pub fn stage(
        &self,
        after: Tid,
        blobs: &[(Oid, NewBlob<'_>)],
    ) -> Result<StagedBlobs, BlobError> {
        let staged = self.telling(self.space.noting(self.stage_all(after, blobs)))?;
        let bytes = blobs.iter().map(|(_, blob)| blob.bytes()).sum();
        self.space.note_granted(&self.path, bytes, false);
        Ok(staged)
    }

    fn stage_all(
        &self,
        after: Tid,
        blobs: &[(Oid, NewBlob<'_>)],
    ) -> Result<StagedBlobs, BlobError> {
        self.check_writable()?;
        for (_, blob) in blobs {
            if let NewBlob::Sent(blob) = blob {
                blob.sync()?;
            }
        }
        let names: Vec<_> = blobs.iter().map(|(oid, _)| (*oid, self.new_name(""))).collect();
        let intent = self.path.join(TEMPORARY_FOLDER).join(self.new_name(INTENT_SUFFIX));
        // Before the first step that it is for: what fails from here on is cleaned up on drop.
        let mut staged = StagedBlobs {
            disk: Arc::clone(&self.disk),
            cleaner: Arc::clone(&self.cleaner),
            sums: Arc::clone(&self.sums),
            intent,
            blobs: Vec::with_capacity(blobs.len()),
            fingerprints: Vec::with_capacity(blobs.len()),
            tid: None,
            is_doubtful: false,
            is_left: false,
        };
        let lines = names.iter().map(|(oid, name)| (*oid, name.as_str()));
        intent::write(self, &staged.intent, after, lines)?;
        for ((oid, blob), (_, name)) in blobs.iter().zip(&names) {
            let path = self.folder_of(*oid).join(name);
            staged.blobs.push(path.clone());
            staged.fingerprints.push((*oid, self.put(*oid, blob, &path)?));
        }
        Ok(staged)
    }

    /// Gives a blob its name in the folder of its object. Returns what to record of it.
    fn put(&self, oid: Oid, blob: &NewBlob<'_>, path: &Path) -> Result<Fingerprint, BlobError> {
        let (source, fingerprint) = match blob {
            NewBlob::Sent(blob) => (blob.path().to_owned(), blob.fingerprint()),
            NewBlob::SameAs(tid) => {
                let committed = self.open_committed(oid, *tid)?;
                let synced = committed.file.sync();
                synced.map_err(|error| BlobError::io(&committed.path, "sync", error))?;
                // A second name for a symbolic link could not be made read-only.
                let source = self.disk.resolve(&committed.path);
                let source =
                    source.map_err(|error| BlobError::io(&committed.path, "resolve", error))?;
                let length_only = Fingerprint { length: committed.length, crc32c: None };
                (source, committed.recorded.unwrap_or(length_only))
            }
        };
        let copy = self.with_folder(oid, || {
            let put = match blob {
                NewBlob::Sent(_) => self.disk.move_file(&source, path),
                // It never changes, so a second name for it is as good as a copy.
                NewBlob::SameAs(_) => self.disk.link(&source, path),
            };
            match put {
                // The copy has its name at once, so that the folder stays, and its bytes later.
                Err(error) if asks_for_copy(&error) => {
                    let copy = self.disk.open(path, OpenMode::CreateNew);
                    copy.map(Some).map_err(|error| BlobError::io(path, "create", error))
                }
                result => {
                    result.map(|()| None).map_err(|error| BlobError::writing(path, "put", 0, error))
                }
            }
        })?;
        match (copy, blob) {
            (Some(copy), _) => self.copy(&source, copy.as_ref(), path)?,
            (None, NewBlob::Sent(blob)) => blob.note_taken(),
            (None, NewBlob::SameAs(_)) => {}
        }
        let restricted = self.disk.set_read_only(path);
        restricted.map_err(|error| BlobError::io(path, "make read-only", error))?;
        Ok(fingerprint)
    }

    pub(crate) fn copy(
        &self,
        from: &Path,
        copy: &dyn DiskFile,
        to: &Path,
    ) -> Result<(), BlobError> {
        let read = |error| BlobError::io(from, "read", error);
        let source = self.disk.open(from, OpenMode::Read).map_err(read)?;
        let length = source.length().map_err(read)?;
        let write = |error| BlobError::writing(to, "write", length, error);
        let mut buffer = vec![0; COPY_BYTES];
        let mut position = 0;
        while position < length {
            let count = (length - position).min(COPY_BYTES as u64) as usize;
            source.read_exact_at(&mut buffer[..count], position).map_err(read)?;
            copy.write_all_at(&buffer[..count], position).map_err(write)?;
            position += count as u64;
        }
        copy.sync().map_err(write)
    }
}

/// Whether a file can get there by its data only: from another device, or without links.
pub(crate) fn asks_for_copy(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::CrossesDevices
            | io::ErrorKind::Unsupported
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::TooManyLinks
    )
}

impl StagedBlobs {
    /// As [`StagedBlobs::commit_all`], of one transaction.
    pub fn commit(&mut self, tid: Tid) -> Result<(), BlobError> {
        StagedBlobs::commit_all(&mut [(tid, self)]).pop().unwrap_or(Ok(()))
    }

    /// Gives the blobs of several transactions their final names and makes those durable, all
    /// at the price of one; what became of each. The log must not say that they are committed
    /// before; until [`StagedBlobs::keep`] or [`StagedBlobs::leave`] they are taken back on drop.
    pub fn commit_all(batch: &mut [(Tid, &mut StagedBlobs)]) -> Vec<Result<(), BlobError>> {
        let renamed = batch.iter_mut().map(|(tid, staged)| staged.rename(*tid));
        let mut outcomes: Vec<_> = renamed.collect();
        let mut folders = Vec::new();
        for (place, (_, staged)) in batch.iter().enumerate() {
            if outcomes[place].is_ok() {
                folders.extend(staged.blobs.iter().map(|blob| (place, staged.disk.as_ref(), blob)));
            }
        }
        let failed = sync_folders(&folders);
        for (place, error) in failed {
            batch[place].1.is_doubtful = true;
            outcomes[place] = Err(error);
        }
        outcomes
    }

    fn rename(&mut self, tid: Tid) -> Result<(), BlobError> {
        let name = layout::blob_name(tid);
        self.tid = Some(tid);
        self.sums.make_way(tid);
        for blob in &mut self.blobs {
            let path = blob.with_file_name(&name);
            let moved = self.disk.move_file(blob, &path);
            moved.map_err(|error| BlobError::io(&path, "rename to", error))?;
            *blob = path;
        }
        Ok(())
    }

    /// They are committed: the log says so, durably. Transactions in the order of their tids.
    pub fn keep(mut self) {
        self.blobs.clear();
        if let Some(tid) = self.tid {
            self.sums.append(tid, std::mem::take(&mut self.fingerprints));
        }
        self.remove_intent();
    }

    /// As [`StagedBlobs::keep`], without recording them: for a transaction whose blobs are staged
    /// in several parts. [`BlobDirectory::record`] takes what this gives, of all parts at once.
    pub fn keep_unrecorded(mut self) -> Vec<(Oid, Fingerprint)> {
        self.blobs.clear();
        self.remove_intent();
        std::mem::take(&mut self.fingerprints)
    }

    fn remove_intent(&mut self) {
        // At once, if possible, so that it is not in the directory after the commit.
        self.is_left = self.disk.remove(&self.intent).is_ok();
    }

    /// Whether they are committed is not known, and found out when the log is opened anew.
    pub fn leave(mut self) {
        self.is_left = true;
    }
}

/// Syncs the folders of blobs, of which each object has its own, side by side: a file system makes
/// many durable at the price of one, and other commits wait meanwhile. What failed, by the place
/// of its transaction.
fn sync_folders(folders: &[(usize, &dyn Disk, &PathBuf)]) -> Vec<(usize, BlobError)> {
    let next = AtomicUsize::new(0);
    let sync_some = || {
        let mut failed = Vec::new();
        while let Some((place, disk, blob)) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = disk.sync_folder_of(blob) {
                failed.push((*place, BlobError::io(blob, "sync the folder of", error)));
            }
        }
        failed
    };
    std::thread::scope(|scope| {
        let others = 1..folders.len().min(SYNC_THREADS_MAX);
        // Where no thread is to be had this one does it all.
        let others =
            others.map_while(|_| std::thread::Builder::new().spawn_scoped(scope, sync_some).ok());
        let others: Vec<_> = others.collect();
        let mut failed = sync_some();
        for other in others {
            match other.join() {
                Ok(of_other) => failed.extend(of_other),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        failed
    })
}

impl Drop for StagedBlobs {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let blobs = self.blobs.drain(..).map(|path| (path, None)).collect();
        let intent = std::mem::take(&mut self.intent);
        let intent = (!self.is_doubtful).then_some(intent);
        self.cleaner.take(Refuse { files: blobs, intent, is_durable: true });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use zodium_disk::RealDisk;

    use super::*;

    #[test]
    fn a_blob_that_is_a_link_is_brought_back_by_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blobs");
        let directory = BlobDirectory::open(Arc::new(RealDisk), &path, false).unwrap();
        let (oid, elsewhere) = (Oid(1), folder.path().join("elsewhere"));
        std::fs::write(&elsewhere, b"content").unwrap();
        std::fs::create_dir_all(directory.folder_of(oid)).unwrap();
        symlink(&elsewhere, directory.path_of(oid, Tid(1))).unwrap();
        let mut staged = directory.stage(Tid(1), &[(oid, NewBlob::SameAs(Tid(1)))]).unwrap();
        staged.commit(Tid(2)).unwrap();
        staged.keep();
        let copy = directory.path_of(oid, Tid(2));
        assert_eq!(std::fs::read(&copy).unwrap(), b"content");
        assert!(std::fs::symlink_metadata(&copy).unwrap().is_file());
    }

    #[test]
    fn folders_that_were_removed_beside_the_server_are_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blobs");
        let directory = BlobDirectory::open(Arc::new(RealDisk), &path, false).unwrap();
        let oid = Oid(1);
        for tid in [Tid(1), Tid(2)] {
            let mut sent = directory.temporary().unwrap();
            sent.append(b"content").unwrap();
            let mut staged = directory.stage(Tid(0), &[(oid, NewBlob::Sent(&sent))]).unwrap();
            staged.commit(tid).unwrap();
            staged.keep();
            assert_eq!(std::fs::read(directory.path_of(oid, tid)).unwrap(), b"content");
            std::fs::remove_dir_all(path.join("0x00")).unwrap();
        }
    }
}
