//! Datasets: objects generated from a seed, and the check of their bytes.
//!
//! A revision depends only on the seed, its oid and its place among all writes. So the process that
//! writes the file, the one that loads and the floor agree without communication. The data are
//! random bytes, because servers do not decode them. The last four bytes are a CRC-32C over the oid
//! and all bytes before, which also detects another object's data. An older revision is detected by
//! its transaction, and by its length where that differs.

mod file;
mod plan;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use thiserror::Error;
use zodium_types::{Oid, Tid};

use self::plan::Plan;
pub(crate) use self::plan::Shape;

/// Smallest object: random bytes and the checksum.
pub(crate) const OBJECT_BYTES_MIN: u32 = 16;
/// Largest object; the generator copies the partial reply with every read.
pub(crate) const OBJECT_BYTES_MAX: u32 = 1 << 20;

const CHECKSUM_BYTES: usize = 4;
/// 2023-11-14 22:13:20 UTC: always in the past.
const FIRST_TID_NANOS: u64 = 1_700_000_000_000_000_000;
/// Time between two transactions.
const TID_STEP_NANOS: u64 = 1_000_000;

/// The objects with oids from 0 to one below their number.
#[derive(Clone, Debug)]
pub(crate) struct Dataset {
    shape: Shape,
    revisions: u32,
    seed: u64,
    /// Current revisions, by oid.
    current: Vec<Revision>,
    /// The tids of all transactions.
    tids: Vec<Tid>,
}

/// The current revision of an object.
#[derive(Clone, Copy, Debug, Default)]
struct Revision {
    length: u32,
    /// The index of its transaction.
    transaction: u32,
    /// Its place among all writes.
    write: u64,
}

/// Data that differ from what was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum WrongData {
    #[error("object {oid} has {stored} bytes, but {got} were sent")]
    Length { oid: Oid, stored: usize, got: usize },
    #[error("the {length} bytes sent for object {oid} are not those that were stored: CRC-32C")]
    Checksum { oid: Oid, length: usize },
}

impl Dataset {
    pub(crate) fn new(shape: Shape, objects: u64, revisions: u32, seed: u64) -> Dataset {
        let plan = Plan::new(shape, objects, revisions, seed);
        let mut current: Vec<Revision> = Vec::new();
        let mut transaction = 0;
        for (write, planned) in plan.writes.iter().enumerate() {
            if plan.ends.get(transaction).is_some_and(|end| *end == write) {
                transaction += 1;
            }
            let number = u32::try_from(transaction).unwrap_or(u32::MAX);
            let revision =
                Revision { length: planned.length, transaction: number, write: write as u64 };
            // Objects come in the order of their oids.
            match current.get_mut(planned.oid as usize) {
                Some(place) => *place = revision,
                None => current.push(revision),
            }
        }
        let mut dataset = Dataset { shape, revisions, seed, current, tids: Vec::new() };
        dataset.tids = (0..plan.ends.len()).map(|number| dataset.tid_of(number)).collect();
        dataset
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> u64 {
        self.current.len() as u64
    }

    /// Length of an object's data; 0 for an unknown oid.
    pub(crate) fn length(&self, oid: Oid) -> usize {
        self.revision(oid).map_or(0, |revision| revision.length as usize)
    }

    pub(crate) fn median_length(&self) -> u32 {
        let mut lengths: Vec<u32> = self.current.iter().map(|revision| revision.length).collect();
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied().unwrap_or(0)
    }

    /// A description for people.
    pub(crate) fn description(&self) -> String {
        let (objects, median) = (self.len(), self.median_length());
        let again = match self.revisions {
            1 => String::new(),
            revisions => format!(", written {revisions} times"),
        };
        format!("{objects} objects, median {median} bytes{again}")
    }

    /// The transaction that wrote an object's current revision; zero for an unknown oid.
    pub(crate) fn tid(&self, oid: Oid) -> Tid {
        let transaction = self.revision(oid).map(|revision| revision.transaction as usize);
        transaction.and_then(|number| self.tids.get(number)).map_or(Tid::ZERO, |tid| *tid)
    }

    /// The last transaction.
    pub(crate) fn last_tid(&self) -> Tid {
        self.tids.last().copied().unwrap_or(Tid::ZERO)
    }

    /// Whether each object was written once, in the order of the oids.
    pub(crate) fn is_written_in_order(&self) -> bool {
        let places = self.current.iter().map(|revision| revision.write);
        self.revisions == 1 && places.eq(0..self.len())
    }

    /// The data of an object, checksum included.
    pub(crate) fn data(&self, oid: Oid) -> Vec<u8> {
        let revision = self.revision(oid).unwrap_or_default();
        data(self.seed, oid, revision.write, revision.length)
    }

    fn revision(&self, oid: Oid) -> Option<Revision> {
        self.current.get(usize::try_from(oid.0).ok()?).copied()
    }

    fn tid_of(&self, transaction: usize) -> Tid {
        Tid::from_unix_nanos(FIRST_TID_NANOS + transaction as u64 * TID_STEP_NANOS)
    }

    /// Checks that these are the data of the object.
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
}

/// The data of one revision.
fn data(seed: u64, oid: Oid, write: u64, length: u32) -> Vec<u8> {
    let mut data = vec![0; (length as usize).saturating_sub(CHECKSUM_BYTES)];
    let seed = seed.rotate_left(32) ^ oid.0 ^ write.rotate_left(40);
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut data);
    data.extend(checksum(oid, &data).to_be_bytes());
    data
}

fn checksum(oid: Oid, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&oid.to_bytes()), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_bytes() {
        let [one, two, other] = [1, 1, 2].map(|seed| Dataset::new(Shape::Blocks, 100, 1, seed));
        for oid in (0..100).map(Oid) {
            assert_eq!(one.data(oid), two.data(oid));
            assert_ne!(one.data(oid), other.data(oid));
        }
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let dataset = Dataset::new(Shape::Fixed(60), 3, 1, 1);
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
        let dataset = Dataset::new(Shape::Fixed(60), 3, 1, 1);
        let data = dataset.data(Oid(1));
        let error = WrongData::Checksum { oid: Oid(2), length: 60 };
        assert_eq!(dataset.check(Oid(2), &data), Err(error));
        let error = WrongData::Length { oid: Oid(1), stored: 60, got: 59 };
        assert_eq!(dataset.check(Oid(1), &data[..59]), Err(error));
        assert!(dataset.check(Oid(3), &data).is_err());
    }
}
