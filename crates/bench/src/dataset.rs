//! The objects that are loaded, made from a seed, and how their bytes are checked.
//!
//! Each object is made from the seed and its oid alone, so that the process that writes the file,
//! the one that loads and the floor agree without talking. Its data are random bytes: no server
//! looks into them. The last four are a CRC-32C over the oid and all bytes before, so that also
//! another object's data are noticed.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};
use thiserror::Error;
use zodium_disk::RealDisk;
use zodium_filestorage::{Access, FileStorage, NewBody, NewRecord, NewTransaction, OpenOptions};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

/// Smallest object: random bytes and the checksum.
pub(crate) const OBJECT_BYTES_MIN: u32 = 16;
/// Largest object; the generator copies what it has of a reply with every read.
pub(crate) const OBJECT_BYTES_MAX: u32 = 1 << 20;

const CHECKSUM_BYTES: usize = 4;
/// A block of 4096 bytes with the pickle around it.
const BLOCK_BYTES: u32 = 4145;
/// Of so many objects one is a node of the tree that holds the blocks together.
const OBJECTS_PER_NODE: u64 = 27;
const NODE_BYTES: std::ops::Range<u32> = 150..1600;
const TRANSACTION_OBJECTS: u64 = 100;
/// 2023-11-14 22:13:20 UTC: what was written never lies in the future.
const FIRST_TID_NANOS: u64 = 1_700_000_000_000_000_000;

/// How large the objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// Like an array in blocks of 4 KB, and the tree that holds them.
    Blocks,
    /// All the same.
    Fixed(u32),
}

/// The objects with oid 0 to `objects` - 1.
#[derive(Clone, Debug)]
pub(crate) struct Dataset {
    seed: u64,
    lengths: Vec<u32>,
    /// Of the transactions, each of which wrote [`TRANSACTION_OBJECTS`].
    tids: Vec<Tid>,
}

/// Data that are not what was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum WrongData {
    #[error("object {oid} has {stored} bytes, but {got} were sent")]
    Length { oid: Oid, stored: usize, got: usize },
    #[error("the {length} bytes sent for object {oid} are not those that were stored: CRC-32C")]
    Checksum { oid: Oid, length: usize },
}

impl Dataset {
    pub(crate) fn new(objects: u64, sizes: Sizes, seed: u64) -> Dataset {
        let length = |oid| match sizes {
            Sizes::Fixed(length) => length,
            Sizes::Blocks if oid % OBJECTS_PER_NODE == 0 => {
                random(seed ^ 0x5153, Oid(oid)).random_range(NODE_BYTES)
            }
            Sizes::Blocks => BLOCK_BYTES,
        };
        let tid = |number| Tid::from_unix_nanos(FIRST_TID_NANOS + number * 1_000_000);
        let tids = (0..objects.div_ceil(TRANSACTION_OBJECTS)).map(tid).collect();
        Dataset { seed, lengths: (0..objects).map(length).collect(), tids }
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> u64 {
        self.lengths.len() as u64
    }

    /// Bytes of data of an object; 0 for an object that there is not.
    pub(crate) fn length(&self, oid: Oid) -> usize {
        let index = usize::try_from(oid.0).ok();
        index.and_then(|index| self.lengths.get(index)).map_or(0, |length| *length as usize)
    }

    pub(crate) fn median_length(&self) -> u32 {
        let mut lengths = self.lengths.clone();
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied().unwrap_or(0)
    }

    /// The transaction that an object was written by; none for an object that there is not.
    pub(crate) fn tid(&self, oid: Oid) -> Tid {
        let index = usize::try_from(oid.0 / TRANSACTION_OBJECTS).ok();
        index.and_then(|index| self.tids.get(index)).map_or(Tid::ZERO, |tid| *tid)
    }

    /// The data of an object, checksum included.
    pub(crate) fn data(&self, oid: Oid) -> Vec<u8> {
        let mut data = vec![0; self.length(oid).saturating_sub(CHECKSUM_BYTES)];
        random(self.seed, oid).fill_bytes(&mut data);
        data.extend(checksum(oid, &data).to_be_bytes());
        data
    }

    /// Whether these are the data of the object.
    pub(crate) fn check(&self, oid: Oid, data: &[u8]) -> Result<(), WrongData> {
        let (stored, got) = (self.length(oid), data.len());
        if got != stored {
            return Err(WrongData::Length { oid, stored, got });
        }
        match data.split_last_chunk() {
            Some((body, sum)) if checksum(oid, body) == u32::from_be_bytes(*sum) => Ok(()),
            _ => Err(WrongData::Checksum { oid, length: got }),
        }
    }

    /// Writes them all to a new FileStorage, and its index.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let options = OpenOptions::new(path);
        let storage = FileStorage::open(Arc::new(RealDisk), &options)?;
        for first in (0..self.len()).step_by(TRANSACTION_OBJECTS as usize) {
            let last = self.len().min(first + TRANSACTION_OBJECTS);
            let transaction = self.transaction(first..last);
            let bytes = NewTransaction::bytes(&transaction.metadata, &transaction.records);
            let reservation = storage.reserve(bytes, Access::Blocking)?;
            let appended = storage.append(&[transaction], reservation.into_iter().collect())?;
            appended.into_iter().for_each(|appended| storage.publish(appended));
        }
        Ok(storage.close()?)
    }

    fn transaction(&self, oids: std::ops::Range<u64>) -> NewTransaction {
        let record = |oid| NewRecord { oid, body: NewBody::Data(self.data(oid).into()) };
        NewTransaction {
            tid: self.tid(Oid(oids.start)),
            status: TransactionStatus::Normal,
            metadata: TransactionMetadata::default(),
            records: oids.map(Oid).map(record).collect(),
        }
    }
}

fn random(seed: u64, oid: Oid) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(32) ^ oid.0)
}

fn checksum(oid: Oid, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&oid.to_bytes()), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_like_wczblk1() {
        let dataset = Dataset::new(2127, Sizes::Blocks, 1);
        assert_eq!(dataset.median_length(), 4145);
        let blocks = dataset.lengths.iter().filter(|length| **length == BLOCK_BYTES).count();
        assert_eq!(blocks, 2048);
    }

    #[test]
    fn the_same_seed_makes_the_same_bytes() {
        let [one, two, other] = [1, 1, 2].map(|seed| Dataset::new(100, Sizes::Blocks, seed));
        for oid in (0..100).map(Oid) {
            assert_eq!(one.data(oid), two.data(oid));
            assert_ne!(one.data(oid), other.data(oid));
        }
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let dataset = Dataset::new(3, Sizes::Fixed(60), 1);
        let data = dataset.data(Oid(1));
        assert_eq!(dataset.check(Oid(1), &data), Ok(()));
        for index in 0..data.len() {
            let mut wrong = data.clone();
            wrong[index] ^= 0x10;
            let error = WrongData::Checksum { oid: Oid(1), length: 60 };
            assert_eq!(dataset.check(Oid(1), &wrong), Err(error));
        }
    }

    #[test]
    fn data_of_another_object_or_length_are_noticed() {
        let dataset = Dataset::new(3, Sizes::Fixed(60), 1);
        let data = dataset.data(Oid(1));
        let error = WrongData::Checksum { oid: Oid(2), length: 60 };
        assert_eq!(dataset.check(Oid(2), &data), Err(error));
        let error = WrongData::Length { oid: Oid(1), stored: 60, got: 59 };
        assert_eq!(dataset.check(Oid(1), &data[..59]), Err(error));
        assert!(dataset.check(Oid(3), &data).is_err());
    }

    #[test]
    fn what_is_written_is_what_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Data.fs");
        let dataset = Dataset::new(250, Sizes::Blocks, 7);
        dataset.write(&path).unwrap();
        assert!(folder.path().join("Data.fs.index").exists());
        let options = OpenOptions { read_only: true, create: false, ..OpenOptions::new(path) };
        let storage = FileStorage::open(Arc::new(RealDisk), &options).unwrap();
        for oid in (0..250).map(Oid) {
            let data = storage.load_serial(oid, dataset.tid(oid)).unwrap().unwrap();
            assert_eq!(dataset.check(oid, &data), Ok(()));
        }
    }
}
