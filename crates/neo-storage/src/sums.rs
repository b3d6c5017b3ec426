//! Sums over rows, by which storages compare their replicas.

use sha1::{Digest, Sha1};
use zodium_neo::Checksum;
use zodium_types::{Oid, Tid};

/// A sum over transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TidSum {
    /// How many they are.
    pub(crate) count: u32,
    /// The SHA-1 of their tids.
    pub(crate) checksum: Checksum,
    /// The last one.
    pub(crate) last: Tid,
}

/// A sum over records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SerialSum {
    /// How many they are.
    pub(crate) count: u32,
    /// The SHA-1 of the serials.
    pub(crate) tid_checksum: Checksum,
    /// The last serial.
    pub(crate) last_tid: Tid,
    /// The SHA-1 of the oids.
    pub(crate) oid_checksum: Checksum,
    /// The object of the last record.
    pub(crate) last_oid: Oid,
}

impl TidSum {
    /// Sums up transactions, in their order.
    pub(crate) fn of(tids: &[Tid]) -> TidSum {
        TidSum {
            count: count(tids),
            checksum: checksum(tids.iter().map(|tid| tid.0)),
            last: tids.last().copied().unwrap_or(Tid::ZERO),
        }
    }
}

impl SerialSum {
    /// Sums up records, in their order.
    pub(crate) fn of(records: &[(Tid, Oid)]) -> SerialSum {
        let (last_tid, last_oid) = records.last().copied().unwrap_or((Tid::ZERO, Oid(0)));
        SerialSum {
            count: count(records),
            tid_checksum: checksum(records.iter().map(|(tid, _)| tid.0)),
            last_tid,
            oid_checksum: checksum(records.iter().map(|(_, oid)| oid.0)),
            last_oid,
        }
    }
}

fn count<T>(rows: &[T]) -> u32 {
    u32::try_from(rows.len()).unwrap_or(u32::MAX)
}

/// The SHA-1 of numbers in decimal digits, separated by commas.
fn checksum(numbers: impl Iterator<Item = u64>) -> Checksum {
    let text = numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    if text.is_empty() { Checksum::ZERO } else { Checksum(Sha1::digest(text).into()) }
}
