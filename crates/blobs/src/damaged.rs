//! Counts blobs that a request found damaged, each once. A blob that was restored from a backup
//! no longer counts after the next request for it.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tracing::error;
use zodium_types::{Oid, Tid};

use crate::BlobError;

/// Blobs remembered; a directory with more is not helped by a longer list.
const BLOBS_MAX: usize = 100_000;

/// How a blob differs from what was recorded of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlobDamage {
    /// It is shorter or longer.
    Length,
    /// It is as long, and holds other bytes.
    Bytes,
}

/// The damaged blobs of a directory.
#[derive(Debug, Default)]
pub(crate) struct DamagedBlobs {
    found: Mutex<FxHashMap<(Oid, Tid), BlobDamage>>,
}

impl DamagedBlobs {
    pub(crate) fn count(&self) -> u64 {
        self.found.lock().len() as u64
    }

    pub(crate) fn are(&self, blob: (Oid, Tid), damage: BlobDamage) -> bool {
        self.found.lock().get(&blob) == Some(&damage)
    }

    /// Notes a damaged blob, and logs it when it is new.
    pub(crate) fn note(&self, blob: (Oid, Tid), damage: BlobDamage, what: &BlobError) {
        let mut found = self.found.lock();
        if found.len() >= BLOBS_MAX || found.insert(blob, damage) == Some(damage) {
            return;
        }
        drop(found);
        error!(oid = %blob.0, tid = %blob.1, "damage: {what}");
    }

    /// Notes that a blob does not have that damage, or no longer.
    pub(crate) fn clear(&self, blob: (Oid, Tid), damage: BlobDamage) {
        let mut found = self.found.lock();
        if found.get(&blob) == Some(&damage) {
            found.remove(&blob);
        }
    }

    /// Notes that blobs were removed.
    pub(crate) fn forget(&self, blobs: &[(Oid, Tid)]) {
        let mut found = self.found.lock();
        // A pack drops many blobs, and usually none is damaged.
        if !found.is_empty() {
            for blob in blobs {
                found.remove(blob);
            }
        }
    }
}
