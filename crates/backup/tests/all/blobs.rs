//! Blobs that only a later point has, as of a first backup without their directory.

use std::io;

use zodium_backup::BackupError;
use zodium_backup::places::Place;
use zodium_backup::repository::{Backup, BlobSource, Source, backup, verify};
use zodium_memorystorage::MemoryStorage;
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::memory::{Memory, repository, source, write};

/// Each record is of a blob with the same data.
struct SameData(&'static [u8]);

impl BlobSource for SameData {
    fn is_blob(&self, _: &[u8]) -> bool {
        true
    }

    fn open(&self, _: Oid, _: Tid) -> Result<Option<Box<dyn io::Read>>, BackupError> {
        Ok(Some(Box::new(self.0)))
    }
}

fn full(source: Source<'_>) -> Backup<'_> {
    Backup { source, quick: false, seconds: 1 }
}

#[test]
fn a_lost_object_of_a_blob_is_found_beside_a_content_of_an_earlier_point() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    write(&storage, Tid(1 << 20), TransactionStatus::Normal, &[(Oid(1), b"N.".to_vec())]);
    backup(&repository, &full(source(&storage))).unwrap();
    let first = memory.list("chunks").unwrap();
    let blobs = SameData(b"data of a blob");
    backup(&repository, &full(Source { blobs: &blobs, ..source(&storage) })).unwrap();
    assert_eq!(verify(&repository, false).unwrap().blobs, 1);
    let added = memory.list("chunks").unwrap().into_iter().map(|found| found.object);
    let added: Vec<_> =
        added.filter(|added| first.iter().all(|found| found.object != *added)).collect();
    // The list of chunks, and the blob.
    assert_eq!(added.len(), 2);
    for object in added {
        let bytes = memory.get(&object).unwrap().unwrap();
        memory.remove(&object).unwrap();
        for quick in [false, true] {
            let error = verify(&repository, quick).unwrap_err();
            assert!(error.is_damage(), "{object}: {error}");
        }
        memory.put(&object, bytes).unwrap();
    }
    verify(&repository, false).unwrap();
}
