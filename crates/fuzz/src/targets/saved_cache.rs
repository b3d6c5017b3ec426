//! The file in which a client's cache outlives its process.

use std::path::Path;
use std::sync::Arc;

use zodium_client::cache::{Cache, CacheFile};
use zodium_disk::MemoryDisk;
use zodium_types::{Oid, Tid};

use super::{Target, linear};

const PATH: &str = "cache";
const SOURCE: &str = "1";
const CACHE_BYTES: usize = 1 << 20;
const SUM_BYTES: usize = 4;
/// Number of objects in the seed, and of those that are looked up.
const OBJECTS: u64 = 8;

pub(super) const SAVED_CACHE: Target = Target {
    name: "saved-cache",
    seeds: || vec![saved(), Vec::new()],
    check,
    memory_bytes_max: |length| (8 << 20) + 4 * linear(length),
};

fn saved() -> Vec<u8> {
    let cache = Cache::new(CACHE_BYTES);
    let stream = cache.begin_stream();
    for oid in (0..OBJECTS).map(Oid) {
        cache.insert(stream, oid, Tid(1), Some(Tid(4)), b"first");
        cache.insert(stream, oid, Tid(4), None, b"second");
    }
    cache.verified(stream, Tid(9), []);
    let disk = MemoryDisk::volatile();
    keep(&disk, &cache);
    disk.bytes(Path::new(PATH)).unwrap_or_default()
}

/// Saves a cache over whatever was there before.
fn keep(disk: &MemoryDisk, cache: &Cache) {
    if let (_, Some(file)) = open(disk) {
        let _ = file.save(cache);
    }
}

fn open(disk: &MemoryDisk) -> (Cache, Option<CacheFile>) {
    let cache = Cache::new(CACHE_BYTES);
    let file =
        CacheFile::open(Arc::new(disk.clone()), Path::new(PATH), SOURCE.to_owned(), &cache).ok();
    (cache, file)
}

/// Whatever the file holds: the cache stays within its bounds, answers only what was asked, and
/// survives another save. A file without the right checksum is not used.
fn check(input: &[u8]) {
    let disk = MemoryDisk::volatile();
    disk.put(Path::new(PATH), input.to_vec());
    drop(open(&disk));
    let Some(content) = input.len().checked_sub(SUM_BYTES).map(|end| &input[..end]) else { return };
    let sum = crc32c::crc32c(content).to_be_bytes();
    disk.put(Path::new(PATH), [content, &sum[..]].concat());
    let (cache, _) = open(&disk);
    let metrics = cache.metrics();
    assert!(metrics.bytes <= metrics.bytes_max, "{metrics:?}");
    let again = MemoryDisk::volatile();
    keep(&again, &cache);
    let (restored, _) = open(&again);
    for oid in (0..OBJECTS).map(Oid) {
        for before in [Tid(1), Tid(2), Tid(4), Tid(5), Tid::MAX] {
            let found = cache.lookup(oid, before);
            if let Some(found) = &found {
                assert!(found.serial < before && found.end.is_none_or(|end| before <= end));
            }
            if cache.last_tid() != Tid::ZERO {
                assert_eq!(restored.lookup(oid, before), found, "object {oid} before {before}");
            }
        }
    }
}
