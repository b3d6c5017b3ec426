//! The first pass: each transaction with its records, in the order of the log.

use std::collections::HashSet;

use zodium_pickle::{is_whole_pickle, is_whole_record};
use zodium_storage::{LogItem, Read, StorageError};
use zodium_types::{Oid, Tid};

use super::{Findings, LogCheck, LogChecked, LogDamageKind};
use crate::oid_map::OidMap;
use crate::{TidRange, ToolError, walk};

/// Damaged objects that are passed over in the list of objects.
const DAMAGED_MAX: u32 = 10_000;

/// What the log says of the objects.
#[derive(Default)]
pub(super) struct Log {
    /// The transaction that wrote each object last.
    pub(super) written: OidMap,
    /// Length and CRC-32 of the data of each object.
    pub(super) data: OidMap,
    /// Objects that are deleted.
    pub(super) deleted: HashSet<Oid>,
    /// Whether all of it could be read. If not, later transactions may have written the objects.
    pub(super) is_whole: bool,
    /// What was looked at.
    pub(super) checked: LogChecked,
}

pub(super) fn read_log(
    storage: &dyn Read,
    last: Tid,
    check: LogCheck,
    advance: &mut dyn FnMut(usize),
    findings: &mut Findings<'_>,
) -> Result<Log, ToolError> {
    let mut reader = LogReader { log: Log::default(), current: Tid::ZERO, last, check };
    let read = walk(storage, TidRange::until(last), &mut |item| {
        if let LogItem::Record { data, .. } = item {
            advance(data.map_or(0, <[u8]>::len));
        }
        reader.take(item, findings);
        Ok(())
    });
    let current = (reader.current > Tid::ZERO).then_some(reader.current);
    let mut log = reader.log;
    log.is_whole = read.is_ok() && reader.current <= last;
    if log.is_whole && reader.current < last {
        log.is_whole = !has_objects_of(storage, reader.current.next(), last)?;
    }
    if let Err(error) = read {
        findings.damage_or(error, LogDamageKind::Log, None, current)?;
    } else if !log.is_whole {
        let what = format!("the log ends there, but {last} is said to be the last transaction");
        findings.add(LogDamageKind::Log, None, current, what);
    }
    if !log.is_whole {
        add_objects(storage, &mut log)?;
    }
    Ok(log)
}

/// Whether the transactions from `first` to `last` wrote current objects. A pack drops transactions
/// that wrote none; if the last one is among them, the storage may still name it.
fn has_objects_of(storage: &dyn Read, first: Tid, last: Tid) -> Result<bool, ToolError> {
    let mut from = Some(Oid::ROOT);
    while let Some(oid) = from {
        from = match storage.next_object(oid) {
            Ok(Some(step)) if first <= step.serial && step.serial <= last => return Ok(true),
            Ok(Some(step)) => step.following,
            Ok(None) => None,
            // It may be of these transactions.
            Err(StorageError::Corrupt(_)) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(false)
}

/// Adds the objects that the log has behind its damage, as far as the storage can list them.
fn add_objects(storage: &dyn Read, log: &mut Log) -> Result<(), ToolError> {
    let (mut from, mut damaged) = (Some(Oid::ROOT), 0);
    while let Some(oid) = from {
        let step = match storage.next_object(oid) {
            Ok(Some(step)) => step,
            // A load will report the damage, if this is the object.
            Err(StorageError::Corrupt(_)) if damaged < DAMAGED_MAX => {
                damaged += 1;
                if log.written.find(oid).is_none() {
                    log.written.insert(oid, storage.last_tid().0);
                }
                from = oid.0.checked_add(1).map(Oid);
                continue;
            }
            Ok(None) | Err(StorageError::Corrupt(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if log.written.insert(step.oid, step.serial.0).is_none() {
            log.checked.objects += 1;
        }
        match step.data {
            Some(_) => log.deleted.remove(&step.oid),
            None => log.deleted.insert(step.oid),
        };
        from = step.following;
    }
    Ok(())
}

struct LogReader {
    log: Log,
    /// The transaction whose records come now.
    current: Tid,
    last: Tid,
    check: LogCheck,
}

impl LogReader {
    fn take(&mut self, item: LogItem<'_>, findings: &mut Findings<'_>) {
        match item {
            LogItem::Transaction { tid, extension, .. } => {
                self.log.checked.transactions += 1;
                if tid <= self.current || tid > self.last {
                    let what = match tid <= self.current {
                        true => {
                            format!("the tid is not later than {}, the one before", self.current)
                        }
                        false => format!("the tid is later than {}, the last one", self.last),
                    };
                    findings.add(LogDamageKind::Tid, None, Some(tid), what);
                }
                self.current = tid;
                let is_damaged = !extension.is_empty() && !is_whole_pickle(extension);
                if self.check.pickles && is_damaged {
                    let what = "the extension is no pickle".to_owned();
                    findings.add(LogDamageKind::Pickle, None, Some(tid), what);
                }
            }
            LogItem::Record { oid, data, data_tid } => self.record(oid, data, data_tid, findings),
            LogItem::Skipped => {}
        }
    }

    fn record(
        &mut self,
        oid: Oid,
        data: Option<&[u8]>,
        data_tid: Option<Tid>,
        findings: &mut Findings<'_>,
    ) {
        let LogChecked { bytes, records, objects, .. } = &mut self.log.checked;
        *bytes += data.map_or(0, <[u8]>::len) as u64;
        *records += 1;
        let (tid, place) = (self.current, Some(oid));
        if let Some(earlier) = data_tid.filter(|earlier| *earlier >= tid) {
            let what = format!("the back pointer leads to {earlier}, which is not earlier");
            findings.add(LogDamageKind::Record, place, Some(tid), what);
        }
        if let Some(data) = data.filter(|data| self.check.pickles && !is_whole_record(data)) {
            findings.no_pickles(oid, tid, data, "the data are no two pickles");
        }
        match data {
            None => _ = self.log.deleted.insert(oid),
            Some(data) => {
                self.log.deleted.remove(&oid);
                self.log.data.insert(oid, digest(data));
            }
        }
        if self.log.written.insert(oid, tid.0).is_none() {
            *objects += 1;
        }
    }
}

/// Length and CRC-32 of some data in one number.
pub(super) fn digest(data: &[u8]) -> u64 {
    u64::from(crc32fast::hash(data)) | (data.len() as u64) << 32
}
