//! Blob directories with arbitrary content.

use std::path::PathBuf;
use std::sync::Arc;

use zodium_blobs::BlobDirectory;
use zodium_disk::{Disk, MemoryDisk};
use zodium_filestorage::{FileStorage, OpenOptions};
use zodium_types::{Oid, Tid};

use super::data_file::history;
use super::{Target, linear};

pub(super) const BLOB_NAMES: Target = Target {
    name: "blob-names",
    seeds: || {
        let listings: [&[u8]; 4] = [
            b".layout\nbushy\ntmp/zodium-1\nx",
            b".layout\nlawn\n0x012c/0x03f59458.blob\ndata\n0x012c/zodium-a\nx\n\
              tmp/zodium-1.intent\n000000000000012c zodium-a|0000000000000001 ../x|",
            b"0x00/0x00/0x00/0x00/0x00/0x00/0x00/0x01/0x03f5945800000001.blob\nb\n.removed\n0x01 y",
            b"tmp/zodium-packed\n03f5945800000001 4 true|0000000000000001 0000000000000001|\n\
              .layout\nlawn\n0x01/0x01.blob\ny",
        ];
        listings.iter().map(|listing| listing.to_vec()).collect()
    },
    check,
    memory_bytes_max: |length| (64 << 20) + 16 * linear(length),
};

/// Interprets lines of names and contents in turn as files of the blob directory (`|` ends a line
/// of content). Nothing outside of the directory is touched, and nothing panics.
fn check(input: &[u8]) {
    let disk = MemoryDisk::volatile();
    disk.put("Data.fs".as_ref(), history());
    disk.put("outside".as_ref(), b"kept".to_vec());
    let mut lines = input.split(|byte| *byte == b'\n');
    while let Some(name) = lines.next() {
        let name = String::from_utf8_lossy(name);
        let path: PathBuf = name.split('/').filter(|part| !part.is_empty()).collect();
        let goes_out = path.components().any(|part| part.as_os_str() == "..");
        if !goes_out && !name.is_empty() && !name.contains('\0') {
            let mut content = lines.next().unwrap_or(b"").to_vec();
            content.iter_mut().filter(|byte| **byte == b'|').for_each(|byte| *byte = b'\n');
            disk.put(&PathBuf::from("blobs").join(path), content);
        }
    }
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    if let Ok(blobs) = BlobDirectory::open(Arc::clone(&shared), "blobs".as_ref(), true) {
        let _ = blobs.open_committed(Oid(0x012c), Tid(0x03f5_9458));
        let name = String::from_utf8_lossy(input.get(..20).unwrap_or(input));
        let _ = blobs.adopt(Oid(1), &name);
    }
    let options =
        OpenOptions { blob_directory: Some("blobs".into()), ..OpenOptions::new("Data.fs") };
    if let Ok(storage) = FileStorage::open(shared, &options) {
        drop(storage);
    }
    assert_eq!(disk.bytes("outside".as_ref()), Some(b"kept".to_vec()));
    assert_eq!(disk.bytes("Data.fs".as_ref()), Some(history()));
}
