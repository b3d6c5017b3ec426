//! A look at some objects of a file: are they blobs, and are their files there?

use std::path::Path;
use std::sync::Arc;

use crate::support::{commit, data_file, open, stores, tid};
use zodium_disk::{Disk, MemoryDisk};
use zodium_filestorage::{BlobSample, FileStorage, OpenOptions};
use zodium_storage::Storage;
use zodium_types::Oid;

const BLOBS: &str = "Blobs";
/// `ZODB.blob.Blob` without a state.
const RECORD: &[u8] = b"cZODB.blob\nBlob\nq\x01.N.";

#[test]
fn a_sample_counts_blobs_and_those_without_a_file() {
    let disk = MemoryDisk::new();
    disk.create_folder(Path::new(BLOBS)).unwrap();
    let options =
        OpenOptions { blob_directory: Some(BLOBS.into()), ..OpenOptions::new(data_file()) };
    let storage = FileStorage::open(Arc::new(disk.clone()), &options).unwrap();
    // As the engine asks for it.
    let blobs = Storage::blobs(&storage).unwrap();
    assert!(Storage::blobs(&open(MemoryDisk::new())).is_none());
    let reader = storage.reader();
    assert_eq!(reader.sample_blobs(Some(blobs), 100), BlobSample::default());
    // Objects 0 to 9; each second one is a blob, and three of these have files.
    for oid in 0..10 {
        let data = if oid % 2 == 0 { RECORD } else { b"no blob" };
        commit(&storage, stores(tid(oid + 1), &[(oid, data)])).unwrap();
    }
    let path = |oid: u64| blobs.path_of(Oid(oid), tid(oid + 1));
    for oid in [0, 4, 8] {
        disk.put(&path(oid), b"content".to_vec());
    }
    let missing = |count, oid: Option<u64>| (count, oid.map(path));
    let sample = |blobs, count| {
        let BlobSample { blobs, missing, first_missing } = reader.sample_blobs(blobs, count);
        (blobs, (missing, first_missing))
    };
    for count in [10, 1000] {
        assert_eq!(sample(Some(blobs), count), (5, missing(2, Some(2))));
        assert_eq!(sample(None, count), (5, missing(5, None)));
    }
    // Every fifth object: 0 and 5.
    assert_eq!(sample(Some(blobs), 2), (1, missing(0, None)));
    assert_eq!(sample(None, 2), (1, missing(1, None)));
}
