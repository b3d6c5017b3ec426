//! Dataset files: written once, and kept under a name that describes their content.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use zodium_disk::RealDisk;
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions};
use zodium_storage::{Applier, LogItem, StorageError};
use zodium_types::{Oid, TransactionStatus};

use super::plan::{Plan, Write};
use super::{Dataset, data};
use crate::interrupt::Interrupt;

/// Incremented when the same options make a different file than before.
const GENERATION: u32 = 3;

impl Dataset {
    /// The data file, kept in `kept` if given, else in `folder`. A kept file is either complete or
    /// absent.
    pub(crate) fn file(
        &self,
        kept: Option<&Path>,
        folder: &Path,
        interrupt: &Interrupt,
    ) -> Result<PathBuf> {
        let Some(kept) = kept else {
            let path = folder.join("Data.fs");
            self.write(&path, interrupt)?;
            return Ok(path);
        };
        let place = std::path::absolute(kept)?.join(self.key());
        let path = place.join("Data.fs");
        if path.exists() {
            return Ok(path);
        }
        let cannot = || format!("cannot keep datasets in {}", kept.display());
        std::fs::create_dir_all(kept).with_context(cannot)?;
        let making = tempfile::Builder::new().prefix(".making-").tempdir_in(kept);
        let making = making.with_context(cannot)?;
        self.write(&making.path().join("Data.fs"), interrupt)?;
        match std::fs::rename(making.path(), &place) {
            // Another run may have made it meanwhile, from the same options.
            Err(_) if path.exists() => Ok(path),
            renamed => renamed.with_context(cannot).map(|()| path),
        }
    }

    /// A name that includes everything that the bytes depend on.
    fn key(&self) -> String {
        let shape = format!("{:?}", self.shape).to_lowercase();
        let shape = shape.replace('(', "-").replace(')', "");
        let (objects, revisions, seed) = (self.len(), self.revisions, self.seed);
        format!("{shape}-objects-{objects}-revisions-{revisions}-seed-{seed}-v{GENERATION}")
    }

    /// Writes all revisions to a new FileStorage, its index, and its checksums.
    pub(crate) fn write(&self, path: &Path, interrupt: &Interrupt) -> Result<()> {
        let plan = Plan::new(self.shape, self.len(), self.revisions, self.seed);
        let options = OpenOptions { checksums: ChecksumMode::Commit, ..OpenOptions::new(path) };
        let storage = FileStorage::open(Arc::new(RealDisk), &options)?;
        let mut applier = Applier::new(&storage);
        let mut first = 0;
        for (number, end) in plan.ends.iter().enumerate() {
            interrupt.check()?;
            let writes = plan.writes.get(first..*end).unwrap_or_default();
            self.apply(&mut applier, number, first, writes)?;
            first = *end;
        }
        applier.finish()?;
        Ok(storage.close()?)
    }

    /// Writes a transaction. An object written twice in it is stored with its last data only.
    fn apply(
        &self,
        applier: &mut Applier<'_>,
        number: usize,
        first: usize,
        writes: &[Write],
    ) -> Result<(), StorageError> {
        let (tid, status) = (self.tid_of(number), TransactionStatus::Normal);
        let [user, description, extension] = [&[][..]; 3];
        applier.apply(LogItem::Transaction { tid, status, user, description, extension })?;
        for (place, Write { oid, length }) in writes.iter().enumerate() {
            if writes.iter().skip(place + 1).all(|later| later.oid != *oid) {
                let oid = Oid(u64::from(*oid));
                let data = data(self.seed, oid, (first + place) as u64, *length);
                applier.apply(LogItem::Record { oid, data: Some(&data), data_tid: None })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {

    use zodium_filestorage::CheckOptions;

    use super::super::Shape;
    use super::*;

    fn assert_current(dataset: &Dataset, path: &Path) {
        let options = OpenOptions { read_only: true, create: false, ..OpenOptions::new(path) };
        let storage = FileStorage::open(Arc::new(RealDisk), &options).unwrap();
        for oid in (0..dataset.len()).map(Oid) {
            let data = storage.reader().load_serial(oid, dataset.tid(oid)).unwrap().unwrap();
            assert_eq!(dataset.check(oid, &data), Ok(()));
            assert_eq!(dataset.data(oid), data);
        }
    }

    #[test]
    fn what_is_written_is_what_is_checked() {
        for shape in [Shape::Blocks, Shape::Site, Shape::Fixed(90)] {
            let folder = tempfile::tempdir().unwrap();
            let dataset = Dataset::new(shape, 250, 2, 7);
            let interrupt = Interrupt::listen().unwrap();
            let path = dataset.file(None, folder.path(), &interrupt).unwrap();
            assert!(folder.path().join("Data.fs.index").exists());
            assert_current(&dataset, &path);
            let options = CheckOptions::new(path);
            let mut damage = |damage: &_| panic!("{damage:?}");
            zodium_filestorage::check(&RealDisk, &options, &mut damage).unwrap();
        }
    }

    #[test]
    fn a_kept_file_is_made_once_for_each_kind() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kept");
        let interrupt = Interrupt::listen().unwrap();
        let file = |objects, seed| {
            let dataset = Dataset::new(Shape::Fixed(60), objects, 1, seed);
            let path = dataset.file(Some(&kept), folder.path(), &interrupt).unwrap();
            assert_current(&dataset, &path);
            (path.clone(), std::fs::metadata(path).unwrap().modified().unwrap())
        };
        let first = file(30, 1);
        assert_eq!(file(30, 1), first);
        assert_ne!(file(31, 1).0, first.0);
        assert_ne!(file(30, 2).0, first.0);
        assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 3);
    }
}
