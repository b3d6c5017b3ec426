//! Reads the blobs of a file, and compares their bytes with the sums recorded at their commit.

use std::io;

use zodium_blobs::BlobDirectory;
use zodium_blobs::Fingerprint;
use zodium_disk::{Disk, OpenMode};
use zodium_types::{Oid, Tid};

use super::paced::Paced;
use crate::format::{Damage, DamageKind};

/// A record of a blob.
#[derive(Clone, Copy)]
pub(super) struct BlobRecord {
    pub(super) position: u64,
    pub(super) oid: Oid,
    pub(super) tid: Tid,
}

/// Blobs to read.
#[derive(Default)]
pub(super) struct BlobData {
    blobs: Vec<(BlobRecord, Fingerprint)>,
    bytes: u64,
}

impl BlobData {
    /// Adds a blob, if its sum is known.
    pub(super) fn add(&mut self, record: BlobRecord, recorded: Fingerprint) {
        if recorded.crc32c.is_some() {
            self.blobs.push((record, recorded));
            self.bytes += recorded.length;
        }
    }

    /// Reads the blobs in the order of their records. Returns how many are damaged.
    pub(super) fn compare(
        self,
        disk: &dyn Disk,
        directory: &BlobDirectory,
        progress: &dyn Fn(u64, u64),
        report: &mut dyn FnMut(Damage),
    ) -> u64 {
        let (mut done, mut damaged) = (0, 0);
        let mut paced = Paced::new(progress, self.bytes);
        for (BlobRecord { position, oid, tid }, recorded) in self.blobs {
            let path = directory.path_of(oid, tid);
            let opened = disk.open(&path, OpenMode::Read);
            let found = opened
                .and_then(|file| Fingerprint::of(file.as_ref(), |bytes| paced.reach(done + bytes)));
            let what = match found {
                Ok(found) if found == recorded => None,
                Ok(found) => Some(format!(
                    "{}: other bytes than were committed ({})",
                    path.display(),
                    difference(found, recorded)
                )),
                // A pack has removed it meanwhile: it was there when its length was compared.
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => Some(format!("{}: cannot be read: {error}", path.display())),
            };
            if let Some(what) = what {
                damaged += 1;
                let kind = DamageKind::BlobSum;
                report(Damage { kind, position, what, oid: Some(oid), tid: Some(tid) });
            }
            done += recorded.length;
        }
        damaged
    }
}

fn difference(found: Fingerprint, recorded: Fingerprint) -> String {
    let sum = |fingerprint: Fingerprint| fingerprint.crc32c.unwrap_or(0);
    match found.length == recorded.length {
        true => format!("CRC-32C {:08x}, it was {:08x}", sum(found), sum(recorded)),
        false => format!("{} of them, there were {}", found.length, recorded.length),
    }
}
