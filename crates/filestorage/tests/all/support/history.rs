//! Random histories, written to a storage and to the model alike, and the comparison of the two.

use bytes::Bytes;
use rand::RngExt;
use rand::rngs::SmallRng;
use zodium_filestorage::{FileStorage, FileStorageError};
use zodium_storage::{Access, Load, NewBody, NewRecord, NewTransaction, TransactionRecord};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use super::model::{Model, ModelRecord, ModelTransaction, Revision};
use super::undo::{Undoing, copied_body, undo_record};
use super::{New, commit_all, tid};

/// Where random transactions come from.
pub(crate) struct History {
    pub(crate) model: Model,
    rng: SmallRng,
    /// Objects that are written.
    oids: Vec<Oid>,
    last_tid: Tid,
    /// Whether now and then a record, or metadata, as long as they may get, are written.
    pub(crate) large: bool,
}

impl History {
    pub(crate) fn new(rng: SmallRng) -> History {
        let mut oids: Vec<Oid> = (0..8).map(Oid).collect();
        // Sparse ones: beyond a page of the index, beyond 32 bits, and the largest of all.
        oids.extend([5_000, 1 << 40, (1 << 63) - 1].map(Oid));
        History { model: Model::default(), rng, oids, last_tid: tid(0), large: false }
    }

    /// Goes on after a history that was written before.
    pub(crate) fn after(model: &Model, rng: SmallRng) -> History {
        History { model: model.clone(), last_tid: model.last_tid(), ..History::new(rng) }
    }

    /// Commits a batch of one to four transactions, no object in two of them.
    pub(crate) fn commit_batch(&mut self, storage: &FileStorage) {
        let batch = self.next_batch(storage);
        commit_all(storage, batch).expect("the batch is written");
    }

    /// The batch that comes next. For the model it is committed.
    pub(crate) fn next_batch(&mut self, storage: &FileStorage) -> Vec<New> {
        let before = self.model.clone();
        let mut batch = Vec::new();
        let mut free = self.oids.clone();
        for _ in 0..self.rng.random_range(1..=4) {
            let packed = before.transactions.len() < 3 && self.rng.random_ratio(1, 3);
            let (records, status) = match self.rng.random_range(0..10) {
                0 if !packed => (self.undo(storage, &before, &mut free), TransactionStatus::Normal),
                1 if !packed => {
                    (self.write(storage, &before, &mut free), TransactionStatus::Undone)
                }
                _ if packed => (self.write(storage, &before, &mut free), TransactionStatus::Packed),
                _ => (self.write(storage, &before, &mut free), TransactionStatus::Normal),
            };
            let metadata = self.metadata();
            self.last_tid.0 += match self.rng.random_range(0..3) {
                0 => 1,
                1 => self.rng.random_range(1..1 << 20),
                _ => self.rng.random_range(1..1 << 40),
            };
            let (records, model): (Vec<_>, Vec<_>) = records.into_iter().unzip();
            let tid = self.last_tid;
            self.model.transactions.push(ModelTransaction {
                tid,
                status,
                metadata: metadata.clone(),
                records: model,
            });
            batch.push((tid, NewTransaction { status, metadata, records }));
        }
        batch
    }

    /// Commits a transaction that stores data.
    pub(crate) fn commit(&mut self, storage: &FileStorage, (tid, new): New) {
        let records = new.records.iter().map(|record| match &record.body {
            NewBody::Data(data) => {
                ModelRecord { oid: record.oid, data: Some(data.clone()), points_to: None }
            }
            other => panic!("{other:?}"),
        });
        self.model.transactions.push(ModelTransaction {
            tid,
            status: new.status,
            metadata: new.metadata.clone(),
            records: records.collect(),
        });
        self.last_tid = tid;
        commit_all(storage, vec![(tid, new)]).expect("the transaction is written");
    }

    fn write(
        &mut self,
        storage: &FileStorage,
        before: &Model,
        free: &mut Vec<Oid>,
    ) -> Vec<(NewRecord, ModelRecord)> {
        let mut records = Vec::new();
        for _ in 0..self.rng.random_range(0..4) {
            if free.is_empty() {
                break;
            }
            let oid = free.swap_remove(self.rng.random_range(0..free.len()));
            let repeats = if self.rng.random_ratio(1, 8) { 2 } else { 1 };
            for _ in 0..repeats {
                records.push(self.record(storage, oid, &before.revisions(oid)));
            }
        }
        records
    }

    /// New data, a copy of an earlier revision, or a deletion.
    fn record(
        &mut self,
        storage: &FileStorage,
        oid: Oid,
        revisions: &[Revision],
    ) -> (NewRecord, ModelRecord) {
        let (body, data, points_to) = match self.rng.random_range(0..8) {
            0 => (NewBody::Deleted, None, None),
            1 | 2 if !revisions.is_empty() => {
                let source = &revisions[self.rng.random_range(0..revisions.len())];
                let data = source.data.clone();
                let body = copied_body(storage, oid, data.clone(), Some(source.tid)).unwrap();
                let points_to = data.is_some().then_some(source.tid);
                assert_eq!(matches!(body, NewBody::SameAs(_)), points_to.is_some());
                (body, data, points_to)
            }
            _ => {
                let data = self.data();
                (NewBody::Data(data.clone()), Some(data), None)
            }
        };
        (NewRecord { oid, body }, ModelRecord { oid, data, points_to })
    }

    /// Undoes a transaction of which no object is used by the batch already; nothing when that
    /// cannot be done.
    fn undo(
        &mut self,
        storage: &FileStorage,
        before: &Model,
        free: &mut Vec<Oid>,
    ) -> Vec<(NewRecord, ModelRecord)> {
        if before.transactions.is_empty() {
            return Vec::new();
        }
        let chosen = self.rng.random_range(0..before.transactions.len());
        let chosen = &before.transactions[chosen];
        if chosen.status != TransactionStatus::Normal {
            let refused = storage.reader().records_to_undo(chosen.tid);
            assert!(matches!(refused, Err(FileStorageError::NotUndoable { .. })), "{refused:?}");
            return Vec::new();
        }
        let found = storage.reader().records_to_undo(chosen.tid).unwrap();
        let mut wanted = chosen.oids();
        wanted.sort();
        let mut oids: Vec<Oid> = found.iter().map(|record| record.oid).collect();
        oids.sort();
        assert_eq!(oids, wanted);
        let mut undoing = Undoing::default();
        let mut records = Vec::new();
        for record in found {
            let oid = record.oid;
            let revisions = before.revisions(oid);
            let body = undo_record(storage, chosen.tid, record, &mut undoing).unwrap();
            let at = revisions.iter().position(|revision| revision.tid == chosen.tid).unwrap();
            let unchanged = revisions[at].data == revisions[revisions.len() - 1].data;
            assert_eq!(body.is_some(), unchanged, "undo of {} for {oid}", chosen.tid);
            let Some(body) = body else { continue };
            let previous = at.checked_sub(1).map(|at| &revisions[at]);
            assert_eq!(matches!(body, NewBody::SameAs(_)), previous.is_some());
            let Some(place) = free.iter().position(|free| *free == oid) else { continue };
            free.swap_remove(place);
            let data = previous.and_then(|revision| revision.data.clone());
            let points_to = previous.map(|revision| revision.tid);
            records.push((NewRecord { oid, body }, ModelRecord { oid, data, points_to }));
        }
        records
    }

    fn data(&mut self) -> Bytes {
        let length = match self.rng.random_range(0..40) {
            // Beside the buffer of the writer, and more than the buffer holds.
            0 if self.large => 70_000,
            1 if self.large => 1 << 21,
            // Around what is read at once for a record.
            2 => self.rng.random_range(4080..4200),
            3..10 => 1,
            _ => self.rng.random_range(1..300),
        };
        // Few different ones, so that equal data occur without a pointer.
        if length == 1 {
            return Bytes::copy_from_slice(&[self.rng.random_range(0..3)]);
        }
        let mut data = vec![0; length];
        self.rng.fill(&mut data[..]);
        data.into()
    }

    fn metadata(&mut self) -> TransactionMetadata {
        TransactionMetadata {
            user: self.field(),
            description: self.field(),
            extension: self.field(),
        }
    }

    fn field(&mut self) -> Vec<u8> {
        let length = match self.rng.random_range(0..60) {
            0 if self.large => usize::from(u16::MAX),
            0..20 => 0,
            _ => self.rng.random_range(1..20),
        };
        vec![self.rng.random(); length]
    }
}

/// Compares every answer that a storage can give with the model's.
pub(crate) fn check_everything(storage: &FileStorage, model: &Model, rng: &mut SmallRng) {
    check_sizes(storage, model);
    check_objects(storage, model);
    check_transactions(storage, model);
    check_ranges(storage, model, rng);
    check_undo_log(storage, model);
}

/// Whether any load of a stored revision gives other bytes, be it those of another revision.
pub(crate) fn loads_other_bytes(storage: &FileStorage, model: &Model) -> bool {
    let objects = model.objects();
    let mut revisions = objects.iter().flat_map(|(oid, all)| all.iter().map(move |r| (oid, r)));
    revisions.any(|(oid, revision)| {
        let before = load(storage, *oid, revision.tid.next());
        let serial = storage.reader().load_serial(*oid, revision.tid);
        let other = |found: &Bytes| Some(found) != revision.data.as_ref();
        before.is_ok_and(|found| found.is_some_and(|(found, _)| other(&found)))
            || serial.is_ok_and(|found| found.is_some_and(|found| other(&found)))
    })
}

/// As [`check_everything`], for an error instead of a panic: all that can be read is read.
/// `Ok(true)`: and all of it was right.
pub(crate) fn same_answers(storage: &FileStorage, model: &Model) -> Result<bool, FileStorageError> {
    let mut same = storage.last_tid() == model.last_tid() && storage.size() == model.size();
    for (oid, revisions) in model.objects() {
        for revision in revisions.iter().rev() {
            let loaded = load(storage, oid, revision.tid.next())?;
            same &= loaded == revision.data.clone().map(|data| (data, revision.tid));
        }
        same &= storage.reader().history(oid, usize::MAX)?.len() == revisions.len();
    }
    let mut transactions = storage.reader().iterate(None, None)?;
    let mut expected = model.transactions.iter().filter(|transaction| transaction.counts());
    while let Some(found) = transactions.step()? {
        let expected = expected.next();
        same &= expected.is_some_and(|expected| {
            (found.tid, found.status, &found.metadata)
                == (expected.tid, expected.status, &expected.metadata)
        });
        let mut records = transactions.records().unwrap();
        let mut found = Vec::new();
        while let Some(record) = records.step()? {
            found.push((record.oid, record.data, record.data_tid));
        }
        let expected = expected.map_or(&[][..], |expected| &expected.records[..]);
        let expected = expected.iter().map(|r| (r.oid, r.data.clone(), r.points_to));
        same &= found == expected.collect::<Vec<_>>();
    }
    storage.reader().undo_log(|_| true)?;
    storage.reader().recent(usize::MAX)?;
    let mut next = Some(Oid(0));
    while let Some(from) = next {
        next = storage.reader().next_object(from)?.and_then(|step| step.following);
    }
    Ok(same && expected.next().is_none())
}

fn load(
    storage: &FileStorage,
    oid: Oid,
    before: Tid,
) -> Result<Option<(Bytes, Tid)>, FileStorageError> {
    Ok(match storage.reader().load_before(oid, before, Access::Blocking)? {
        Load::Revision(revision) => Some((revision.data, revision.serial)),
        Load::NoRevision | Load::Missing | Load::WouldBlock => None,
    })
}

fn check_sizes(storage: &FileStorage, model: &Model) {
    assert_eq!(storage.last_tid(), model.last_tid());
    assert_eq!(storage.size(), model.size());
    assert_eq!(storage.reader().object_count(), model.objects().len() as u64);
}

fn check_objects(storage: &FileStorage, model: &Model) {
    let objects = model.objects();
    for (oid, revisions) in &objects {
        check_object(storage, model, *oid, revisions);
    }
    let unknown = Oid(7_777);
    assert!(matches!(
        storage.reader().load_before(unknown, Tid::MAX, Access::Blocking),
        Ok(Load::Missing)
    ));
    assert_eq!(storage.reader().current_serial(unknown, Access::NonBlocking).unwrap(), Some(None));
    assert_eq!(storage.reader().history(unknown, 9).unwrap().len(), 0);

    let mut from = Oid(0);
    let mut expected = objects.iter().peekable();
    while let Some((oid, revisions)) = expected.next() {
        let step = storage.reader().next_object(from).unwrap().unwrap();
        let current = &revisions[revisions.len() - 1];
        assert_eq!((step.oid, step.serial, &step.data), (*oid, current.tid, &current.data));
        assert_eq!(step.following, expected.peek().map(|(oid, _)| **oid));
        from = Oid(oid.0 + 1);
    }
    assert!(storage.reader().next_object(from).unwrap().is_none());
}

fn check_object(storage: &FileStorage, model: &Model, oid: Oid, revisions: &[Revision]) {
    let tids = model.transactions.iter().map(|transaction| transaction.tid);
    let tids = tids.flat_map(|tid| [tid, tid.next()]).chain([Tid::ZERO, Tid::MAX]);
    for before in tids {
        let wanted = revisions.iter().rposition(|revision| revision.tid < before);
        let found = storage.reader().load_before(oid, before, Access::NonBlocking).unwrap();
        let context = || format!("{oid} before {before}");
        match (found, wanted) {
            (Load::NoRevision, None) => {}
            (Load::Missing, Some(at)) => assert_eq!(revisions[at].data, None, "{}", context()),
            (Load::Revision(found), Some(at)) => {
                let end = revisions.get(at + 1).map(|next| next.tid);
                let wanted = (revisions[at].tid, revisions[at].data.as_ref(), end);
                let found = (found.serial, Some(&found.data), found.end);
                assert_eq!(found, wanted, "{}", context());
            }
            (found, wanted) => panic!("{}: {found:?} instead of {wanted:?}", context()),
        }
    }
    for transaction in &model.transactions {
        let wanted = revisions.iter().find(|revision| revision.tid == transaction.tid);
        let wanted = wanted.and_then(|revision| revision.data.clone());
        assert_eq!(storage.reader().load_serial(oid, transaction.tid).unwrap(), wanted);
    }
    let current = &revisions[revisions.len() - 1];
    let serial = storage.reader().current_serial(oid, Access::Blocking).unwrap();
    assert_eq!(serial, Some(Some(current.tid)));
    let living = current.data.is_some().then_some(current.tid);
    assert_eq!(storage.reader().serial_of_living(oid).unwrap(), living);

    for count in [0, 1, 3, usize::MAX] {
        let history = storage.reader().history(oid, count).unwrap();
        let history: Vec<_> = history.iter().map(history_line).collect();
        let wanted = revisions.iter().rev().take(count);
        assert_eq!(history, wanted.map(|r| (r.tid, r.size)).collect::<Vec<_>>());
    }
}

fn history_line(entry: &zodium_storage::HistoryEntry) -> (Tid, u64) {
    (entry.transaction.tid, entry.size)
}

fn check_transactions(storage: &FileStorage, model: &Model) {
    let mut transactions = storage.reader().iterate(None, None).unwrap();
    for wanted in model.transactions.iter().filter(|transaction| transaction.counts()) {
        let found = transactions.step().unwrap().expect("a further transaction");
        assert_eq!((found.tid, found.status), (wanted.tid, wanted.status));
        assert_eq!((&found.metadata, found.length), (&wanted.metadata, wanted.length()));
        let mut records = transactions.records().unwrap();
        for wanted in &wanted.records {
            let TransactionRecord { oid, tid, data, data_tid, .. } =
                records.step().unwrap().expect("a further record");
            assert_eq!((oid, tid, &data), (wanted.oid, found.tid, &wanted.data));
            assert_eq!(data_tid, wanted.points_to);
        }
        assert!(records.step().unwrap().is_none());
    }
    assert!(transactions.step().unwrap().is_none());

    for count in [0, 1, 2, usize::MAX] {
        let wanted = model.transactions.iter().rev().take(count).rev();
        let oids = |t: &ModelTransaction| if t.counts() { t.oids() } else { Vec::new() };
        let wanted: Vec<_> = wanted.map(|t| (t.tid, oids(t))).collect();
        assert_eq!(storage.reader().recent(count).unwrap(), wanted);
    }
}

fn check_ranges(storage: &FileStorage, model: &Model, rng: &mut SmallRng) {
    let counting = || model.transactions.iter().filter(|transaction| transaction.counts());
    let mut bounds: Vec<Option<Tid>> = vec![None, Some(Tid::ZERO), Some(Tid::MAX)];
    for transaction in &model.transactions {
        let tid = transaction.tid;
        bounds.extend([Some(Tid(tid.0 - 1)), Some(tid), Some(tid.next())]);
    }
    for (at, bound) in bounds.iter().enumerate() {
        let other = bounds[rng.random_range(0..bounds.len())];
        let (start, stop) = if at % 2 == 0 { (*bound, other) } else { (other, *bound) };
        let mut transactions = storage.reader().iterate(start, stop).unwrap();
        let mut found = Vec::new();
        while let Some(transaction) = transactions.step().unwrap() {
            found.push(transaction.tid);
        }
        let (first, last) = (start.unwrap_or(Tid::ZERO), stop.unwrap_or(Tid::MAX));
        let tids = counting().map(|transaction| transaction.tid);
        let wanted: Vec<_> = tids.filter(|tid| first <= *tid && *tid <= last).collect();
        assert_eq!(found, wanted, "from {start:?} to {stop:?}");
    }
}

fn check_undo_log(storage: &FileStorage, model: &Model) {
    let wanted: Vec<Tid> = model.undoable().map(|transaction| transaction.tid).collect();
    for most in [1, usize::MAX] {
        let mut found = Vec::new();
        let take = |transaction: &zodium_storage::Transaction| {
            found.push(transaction.tid);
            found.len() < most
        };
        storage.reader().undo_log(take).unwrap();
        assert_eq!(found, wanted[..most.min(wanted.len())]);
    }
}
