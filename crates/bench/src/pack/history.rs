//! Generates a file that is worth packing: old revisions and unreachable objects.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use zodium_disk::RealDisk;
use zodium_filestorage::{FileStorage, OpenOptions};
use zodium_storage::{Applier, LogItem};
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::interrupt::Interrupt;
use crate::options::PackOptions;

const TRANSACTION_OBJECTS: usize = 10;
/// 2023-11-14 22:13:20 UTC: before the pack time.
const FIRST_TID_NANOS: u64 = 1_700_000_000_000_000_000;

/// Objects 0 to `objects` - 1, each with references to two more as in a heap; then `garbage`
/// unreachable objects; then the former again, `revisions` times.
pub(super) struct History {
    objects: u64,
    garbage: u64,
    revisions: u64,
    object_bytes: usize,
}

impl History {
    pub(super) fn new(options: &PackOptions) -> History {
        History {
            objects: options.objects,
            garbage: options.garbage,
            revisions: options.revisions,
            object_bytes: options.object_bytes,
        }
    }

    pub(super) fn description(&self) -> String {
        format!(
            "{} objects of {} bytes, written {} times, and {} that nothing leads to",
            self.objects,
            self.object_bytes,
            self.revisions + 1,
            self.garbage
        )
    }

    /// The data of an object, different each time.
    pub(super) fn data(&self, oid: u64, random: &mut impl Rng) -> Bytes {
        let mut data = b"\x80\x03cpersistent.list\nPersistentList\nq\0.\x80\x03(".to_vec();
        let children = [2 * oid + 1, 2 * oid + 2];
        for child in children.iter().filter(|child| oid < self.objects && **child < self.objects) {
            data.extend_from_slice(b"C\x08");
            data.extend_from_slice(&child.to_be_bytes());
            data.extend_from_slice(b"h\0\x86Q");
        }
        let mut filler = vec![0; self.object_bytes.saturating_sub(data.len() + 7)];
        random.fill_bytes(&mut filler);
        let length = u32::try_from(filler.len()).unwrap_or(u32::MAX);
        data.push(b'B');
        data.extend_from_slice(&length.to_le_bytes());
        data.extend_from_slice(&filler);
        data.extend_from_slice(b"t.");
        data.into()
    }

    /// Writes it to a new FileStorage, with its index.
    pub(super) fn write(&self, path: &Path, interrupt: &Interrupt) -> Result<()> {
        let options = OpenOptions::new(path);
        let storage = FileStorage::open(Arc::new(RealDisk), &options)?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let again = (0..self.revisions).flat_map(|_| 0..self.objects);
        let oids: Vec<u64> = (0..self.objects + self.garbage).chain(again).collect();
        let mut applier = Applier::new(&storage);
        for (number, oids) in (0..).zip(oids.chunks(TRANSACTION_OBJECTS)) {
            interrupt.check()?;
            let tid = Tid::from_unix_nanos(FIRST_TID_NANOS + number * 1_000_000);
            let status = TransactionStatus::Normal;
            let [user, description, extension] = [&[][..]; 3];
            applier.apply(LogItem::Transaction { tid, status, user, description, extension })?;
            for oid in oids.iter().copied().map(Oid) {
                let data = self.data(oid.0, &mut random);
                applier.apply(LogItem::Record { oid, data: Some(&data), data_tid: None })?;
            }
        }
        applier.finish()?;
        Ok(storage.close()?)
    }
}
