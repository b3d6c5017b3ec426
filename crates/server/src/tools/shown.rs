//! A storage whose log is read with progress on a terminal.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Poll;

use zodium_storage::{
    Access, HistoryEntry, Load, LogItem, Missed, ObjectStep, Read, RecordCursor, ResidentRevisions,
    Stamp, StorageError, StoredRecord, Transaction, TransactionCursor,
};
use zodium_types::{Oid, Tid};

use crate::progress::Progress;

/// Bytes that a record takes in a data file beside its data.
const RECORD_HEAD_BYTES: usize = 42;

/// Shows how far each walk through the log of a storage is.
pub(super) struct Shown {
    storage: Arc<dyn Read>,
    /// What the command does, such as "analyzing".
    what: &'static str,
}

impl Shown {
    pub(super) fn new(storage: Arc<dyn Read>, what: &'static str) -> Shown {
        Shown { storage, what }
    }
}

impl Read for Shown {
    fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Box<dyn TransactionCursor>, StorageError> {
        let what = format!("{} {}", self.what, self.name());
        let progress = Progress::of_log(what, &*self.storage);
        Ok(Box::new(ShownCursor { cursor: self.storage.iterate(start, stop)?, progress }))
    }

    fn name(&self) -> String {
        self.storage.name()
    }

    fn is_read_only(&self) -> bool {
        self.storage.is_read_only()
    }

    fn keeps_statuses(&self) -> bool {
        self.storage.keeps_statuses()
    }

    fn keeps_back_pointers(&self) -> bool {
        self.storage.keeps_back_pointers()
    }

    fn is_of_python_2(&self) -> bool {
        self.storage.is_of_python_2()
    }

    fn size(&self) -> u64 {
        self.storage.size()
    }

    fn object_count(&self) -> u64 {
        self.storage.object_count()
    }

    fn last_tid(&self) -> Tid {
        self.storage.last_tid()
    }

    fn last_oid(&self) -> Oid {
        self.storage.last_oid()
    }

    fn load_before(&self, oid: Oid, before: Tid, access: Access) -> Result<Load, StorageError> {
        self.storage.load_before(oid, before, access)
    }

    fn load_resident(&self, oid: Oid, before: Tid, missed: &Missed) -> Result<Load, StorageError> {
        self.storage.load_resident(oid, before, missed)
    }

    fn loads_at_once(&self) -> usize {
        self.storage.loads_at_once()
    }

    fn load_many_before(&self, asked: &[(Oid, Tid)]) -> Vec<Result<Load, StorageError>> {
        self.storage.load_many_before(asked)
    }

    fn is_still_current(&self, oid: Oid, stamp: Stamp) -> bool {
        self.storage.is_still_current(oid, stamp)
    }

    fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, StorageError> {
        self.storage.record(oid, serial)
    }

    fn poll_serial(&self, oid: Oid, access: Access) -> Result<Poll<Option<Tid>>, StorageError> {
        self.storage.poll_serial(oid, access)
    }

    fn each_revision(
        &self,
        oid: Oid,
        count: usize,
        accept: &mut dyn FnMut(HistoryEntry) -> bool,
    ) -> Result<(), StorageError> {
        self.storage.each_revision(oid, count, accept)
    }

    fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError> {
        self.storage.next_object(from)
    }

    fn recent(&self, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
        self.storage.recent(count)
    }

    fn read_resident(&self, look_up: &mut dyn FnMut(&dyn ResidentRevisions)) {
        self.storage.read_resident(look_up);
    }
}

struct ShownCursor {
    cursor: Box<dyn TransactionCursor>,
    progress: Progress,
}

impl TransactionCursor for ShownCursor {
    fn step(&mut self) -> Result<Option<Transaction>, StorageError> {
        self.cursor.step()
    }

    fn records(&self) -> Option<Box<dyn RecordCursor>> {
        self.cursor.records()
    }

    fn read(
        &mut self,
        with_records: bool,
        visit: &mut dyn FnMut(LogItem<'_>) -> ControlFlow<()>,
    ) -> Result<bool, StorageError> {
        let ShownCursor { cursor, progress } = self;
        cursor.read(with_records, &mut |item| {
            if let LogItem::Record { data, .. } = item {
                progress.advance(RECORD_HEAD_BYTES + data.map_or(0, <[u8]>::len));
            }
            visit(item)
        })
    }
}
