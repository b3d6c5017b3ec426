//! Reading a storage.

use std::task::Poll;

use bytes::Bytes;
use zodium_disk::Missed;
use zodium_types::{Oid, Tid};

use crate::{
    Access, HistoryEntry, Load, ObjectStep, ResidentRevisions, Stamp, StorageError, StoredRecord,
    TransactionCursor,
};

/// The read side of a storage. From any thread; a read sees what is committed, and nothing else.
pub trait Read: Send + Sync {
    /// Its name for people: the path of a file, the URL of a database.
    fn name(&self) -> String;

    /// Whether it was opened for reading only.
    fn is_read_only(&self) -> bool;

    /// Whether it keeps the statuses of transactions that are copied into it.
    fn keeps_statuses(&self) -> bool {
        true
    }

    /// Whether the back pointers of records lead to the same records as those that were copied into
    /// it. Otherwise they may lead to others with these data.
    fn keeps_back_pointers(&self) -> bool {
        true
    }

    /// Whether it is a data file of Python 2, which a copy should be too.
    fn is_of_python_2(&self) -> bool {
        false
    }

    /// Bytes that it takes.
    fn size(&self) -> u64;

    /// The number of objects, deleted ones included until a pack.
    fn object_count(&self) -> u64;

    /// The last transaction; [`Tid::ZERO`] when there is none. While a batch is committed it may be
    /// ahead of what reads see.
    fn last_tid(&self) -> Tid;

    /// The largest oid that is in use, was handed out, or is left out of what will be.
    fn last_oid(&self) -> Oid;

    /// The latest revision of `oid` written by a transaction before `before`.
    fn load_before(&self, oid: Oid, before: Tid, access: Access) -> Result<Load, StorageError>;

    /// As [`Read::load_before`] with [`Access::NonBlocking`]. When it would wait, `missed` may say
    /// for which bytes: once these are in memory, it gets further.
    fn load_resident(&self, oid: Oid, before: Tid, missed: &Missed) -> Result<Load, StorageError> {
        let _ = missed;
        self.load_before(oid, before, Access::NonBlocking)
    }

    /// The most loads that one [`Read::load_many_before`] should be given. 1 where loads that wait
    /// side by side are answered sooner: on a disk, for example.
    fn loads_at_once(&self) -> usize {
        1
    }

    /// As [`Read::load_before`] for each of `asked`, an oid and its `before`; the answers are in
    /// that order. Blocking.
    fn load_many_before(&self, asked: &[(Oid, Tid)]) -> Vec<Result<Load, StorageError>> {
        let load = |&(oid, before): &(Oid, Tid)| self.load_before(oid, before, Access::Blocking);
        asked.iter().map(load).collect()
    }

    /// Whether an answer that was computed a while ago may still say that it is current.
    ///
    /// A load that waited for the disk must ask this before it is sent: meanwhile a newer
    /// revision may have been announced to the client.
    fn is_still_current(&self, oid: Oid, stamp: Stamp) -> bool;

    /// The record that transaction `serial` wrote for `oid`; `None` when it wrote none, or when
    /// that was packed away. Blocking.
    fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, StorageError>;

    /// The data that transaction `serial` wrote for `oid`; `None` when it wrote none, or deleted
    /// the object. Blocking.
    fn load_serial(&self, oid: Oid, serial: Tid) -> Result<Option<Bytes>, StorageError> {
        Ok(self.record(oid, serial)?.and_then(|record| record.data))
    }

    /// The current serial of `oid`, deletions included; `None` when it was never stored.
    /// [`Poll::Pending`] when that takes more than a look into memory, and access is non-blocking.
    ///
    /// A damaged record has the serial of the transaction around it, if that is sound, so that a
    /// client that has the object can store it again.
    fn poll_serial(&self, oid: Oid, access: Access) -> Result<Poll<Option<Tid>>, StorageError>;

    /// As [`Read::poll_serial`]. Blocking.
    fn current_serial(&self, oid: Oid) -> Result<Option<Tid>, StorageError> {
        match self.poll_serial(oid, Access::Blocking)? {
            Poll::Ready(serial) => Ok(serial),
            Poll::Pending => Err(StorageError::Other("a blocking read did not wait".into())),
        }
    }

    /// The serial of the current revision; `None` when there is no object or it is deleted.
    /// Blocking.
    fn serial_of_living(&self, oid: Oid) -> Result<Option<Tid>, StorageError> {
        match self.load_before(oid, Tid::MAX, Access::Blocking)? {
            Load::Revision(revision) => Ok(Some(revision.serial)),
            Load::NoRevision | Load::Missing | Load::WouldBlock => Ok(None),
        }
    }

    /// Passes the newest `count` revisions of `oid` to `accept`, newest first, until it returns
    /// false; none for an unknown object. Blocking.
    fn each_revision(
        &self,
        oid: Oid,
        count: usize,
        accept: &mut dyn FnMut(HistoryEntry) -> bool,
    ) -> Result<(), StorageError>;

    /// The newest `count` revisions of `oid`, newest first; empty for an unknown object. Blocking.
    fn history(&self, oid: Oid, count: usize) -> Result<Vec<HistoryEntry>, StorageError> {
        let mut entries = Vec::new();
        self.each_revision(oid, count, &mut |entry| {
            entries.push(entry);
            true
        })?;
        Ok(entries)
    }

    /// The current revision of the first object at or after `from` in oid order, and the oid of
    /// the one that follows it. Deleted objects are there too, without data. Blocking.
    fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError>;

    /// Transactions with `start <= tid <= stop`, oldest first. Blocking.
    fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Box<dyn TransactionCursor>, StorageError>;

    /// The newest `count` transactions with the objects that they gave a new revision, each once,
    /// oldest first. Blocking.
    fn recent(&self, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError>;

    /// Calls `look_up` once with the revisions that are in memory. A storage that keeps none there
    /// does not call it.
    fn read_resident(&self, look_up: &mut dyn FnMut(&dyn ResidentRevisions)) {
        let _ = look_up;
    }
}
