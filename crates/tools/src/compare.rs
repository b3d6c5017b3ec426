//! Compares two storages, transaction by transaction.
//!
//! Key decision: both logs are read in batches, whose data stay in memory and are compared byte for
//! byte. Of a transaction that is larger than a batch, only the hashes of further data are kept.

use std::mem;
use std::ops::{ControlFlow, Range};

use sha2::{Digest, Sha256};
use zodium_pickle::{Limits, Value, decode_extension};
use zodium_storage::{LogItem, Read, TransactionCursor};
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::back_pointers::BackPointers;
use crate::{TidRange, ToolError};

/// Bytes of a batch, after which it ends with its transaction.
const BATCH_BYTES: usize = 2 << 20;
/// Bytes of a batch after which only hashes of data are kept.
const DATA_BYTES_MAX: usize = 16 << 20;

/// How two storages differ first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// One has a transaction that the other has not.
    Missing {
        /// The transaction.
        tid: Tid,
        /// Which storage has it: 1 or 2.
        present_in: u8,
    },
    /// Both have the transaction, and its content differs.
    Different {
        /// The transaction.
        tid: Tid,
    },
}

/// The first difference between two storages; `None` if they are equal in that range.
///
/// Compared are tid, status, user, description, the decoded extension, and by oid the data and the
/// transaction that a back pointer leads to. Not compared are statuses if one storage
/// [keeps none](Read::keeps_statuses). If one [keeps no back pointers](Read::keeps_back_pointers),
/// what they lead to in the end is compared, and only the last record of an object in a
/// transaction, which is the one that is loaded. `progress` is called with numbers of bytes of the
/// first one that were read.
///
/// # Errors
/// Those of the storages.
pub fn compare(
    first: &dyn Read,
    second: &dyn Read,
    range: TidRange,
    progress: &mut dyn FnMut(usize),
) -> Result<Option<Difference>, ToolError> {
    if range.is_empty() {
        return Ok(None);
    }
    let with_status = first.keeps_statuses() && second.keeps_statuses();
    let follows = !(first.keeps_back_pointers() && second.keeps_back_pointers());
    let mut first = Side::new(first, range, follows)?;
    let mut second = Side::new(second, range, follows)?;
    loop {
        first.fill(progress)?;
        second.fill(&mut |_| ())?;
        if follows {
            first.follow_back_pointers()?;
            second.follow_back_pointers()?;
        }
        let missing = |tid, present_in| Ok(Some(Difference::Missing { tid, present_in }));
        match (first.current(), second.current()) {
            (None, None) => return Ok(None),
            (Some(one), None) => return missing(one.tid, 1),
            (None, Some(two)) => return missing(two.tid, 2),
            (Some(one), Some(two)) if one.tid < two.tid => return missing(one.tid, 1),
            (Some(one), Some(two)) if one.tid > two.tid => return missing(two.tid, 2),
            (Some(one), Some(two)) => {
                let is_same_status = !with_status || one.status == two.status;
                if !is_same_status || !is_equal((one, &first.batch), (two, &second.batch)) {
                    return Ok(Some(Difference::Different { tid: one.tid }));
                }
            }
        }
        first.next += 1;
        second.next += 1;
    }
}

/// One of the two logs.
struct Side<'s> {
    back_pointers: BackPointers<'s>,
    cursor: Box<dyn TransactionCursor>,
    batch: Batch,
    /// The transaction of the batch that is compared next.
    next: usize,
    is_over: bool,
}

#[derive(Default)]
struct Batch {
    /// Whether only the last record of each object in a transaction counts.
    last_records: bool,
    /// Those that are whole.
    transactions: Vec<Head>,
    /// The one that is being read.
    unfinished: Option<Head>,
    records: Vec<Record>,
    bytes: Vec<u8>,
}

struct Head {
    tid: Tid,
    status: TransactionStatus,
    user: Range<usize>,
    description: Range<usize>,
    extension: Range<usize>,
    records: Range<usize>,
}

struct Record {
    oid: Oid,
    /// Where the back pointer leads.
    data_tid: Option<Tid>,
    /// Where it leads in the end, if that counts.
    source: Option<Tid>,
    body: Body,
}

enum Body {
    Deleted,
    Bytes(Range<usize>),
    Hash([u8; 32]),
}

impl<'s> Side<'s> {
    fn new(
        storage: &'s dyn Read,
        range: TidRange,
        last_records: bool,
    ) -> Result<Side<'s>, ToolError> {
        let cursor = storage.iterate(range.min, range.max)?;
        let back_pointers = BackPointers::new(storage, range.min);
        let batch = Batch { last_records, ..Batch::default() };
        Ok(Side { back_pointers, cursor, batch, next: 0, is_over: false })
    }

    fn current(&self) -> Option<&Head> {
        self.batch.transactions.get(self.next)
    }

    /// Looks where the back pointers of the current transaction lead in the end.
    fn follow_back_pointers(&mut self) -> Result<(), ToolError> {
        let Some(head) = self.batch.transactions.get(self.next) else { return Ok(()) };
        for record in &mut self.batch.records[head.records.clone()] {
            if let Some(leads_to) = record.data_tid {
                record.source = Some(self.back_pointers.follow(record.oid, head.tid, leads_to)?);
            }
        }
        Ok(())
    }

    /// Reads a batch when the last one is used up.
    fn fill(&mut self, progress: &mut dyn FnMut(usize)) -> Result<(), ToolError> {
        while self.next >= self.batch.transactions.len() && !self.is_over {
            self.batch.keep_unfinished();
            self.next = 0;
            let before = self.batch.bytes.len();
            let batch = &mut self.batch;
            self.is_over = self.cursor.read(true, &mut |item| batch.take(item))?;
            progress(batch.bytes.len() - before);
            if self.is_over {
                batch.end_last();
            }
        }
        Ok(())
    }
}

impl Batch {
    /// Adds an item. Breaks at the beginning of a transaction when there is enough before it.
    fn take(&mut self, item: LogItem<'_>) -> ControlFlow<()> {
        match item {
            LogItem::Transaction { tid, status, user, description, extension } => {
                let is_full = self.bytes.len() >= BATCH_BYTES;
                self.end_last();
                let records = self.records.len()..self.records.len();
                let (user, description) = (self.push(user), self.push(description));
                let extension = self.push(extension);
                let head = Head { tid, status, user, description, extension, records };
                self.unfinished = Some(head);
                if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            LogItem::Record { oid, data, data_tid } => {
                let body = match data {
                    None => Body::Deleted,
                    Some(data) if self.bytes.len() < DATA_BYTES_MAX => Body::Bytes(self.push(data)),
                    Some(data) => Body::Hash(Sha256::digest(data).into()),
                };
                let data_tid = data_tid.filter(|_| data.is_some());
                self.records.push(Record { oid, data_tid, source: None, body });
                ControlFlow::Continue(())
            }
            LogItem::Skipped => ControlFlow::Continue(()),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// The transaction that was being read is whole.
    fn end_last(&mut self) {
        if let Some(mut head) = self.unfinished.take() {
            let mut records = self.records.split_off(head.records.start);
            // Stable: several records of an object stay in their order.
            records.sort_by_key(|record| record.oid);
            if self.last_records {
                records.dedup_by(|later, kept| {
                    let is_same = later.oid == kept.oid;
                    if is_same {
                        mem::swap(later, kept);
                    }
                    is_same
                });
            }
            self.records.append(&mut records);
            head.records.end = self.records.len();
            self.transactions.push(head);
        }
    }

    /// Forgets the whole transactions.
    fn keep_unfinished(&mut self) {
        self.transactions.clear();
        let kept = self.unfinished.as_ref().map(|head| (head.records.start, head.user.start));
        let (records, bytes) = kept.unwrap_or((self.records.len(), self.bytes.len()));
        self.records.drain(..records);
        self.bytes.drain(..bytes);
        let shifted = |range: &mut Range<usize>, by| *range = range.start - by..range.end - by;
        if let Some(head) = &mut self.unfinished {
            shifted(&mut head.records, records);
            for range in [&mut head.user, &mut head.description, &mut head.extension] {
                shifted(range, bytes);
            }
        }
        for record in &mut self.records {
            if let Body::Bytes(range) = &mut record.body {
                shifted(range, bytes);
            }
        }
    }
}

/// Whether all but the statuses is equal.
fn is_equal((one, one_batch): (&Head, &Batch), (two, two_batch): (&Head, &Batch)) -> bool {
    let field = |of: fn(&Head) -> &Range<usize>| {
        (&one_batch.bytes[of(one).clone()], &two_batch.bytes[of(two).clone()])
    };
    let (user, description) = (field(|head| &head.user), field(|head| &head.description));
    let (extension, other_extension) = field(|head| &head.extension);
    let records = &one_batch.records[one.records.clone()];
    let others = &two_batch.records[two.records.clone()];
    user.0 == user.1
        && description.0 == description.1
        && (extension == other_extension || is_same_extension(extension, other_extension))
        && records.len() == others.len()
        && records.iter().zip(others).all(|(record, other)| {
            record.oid == other.oid
                && leads_to_same(record, other)
                && is_same_body((&record.body, one_batch), (&other.body, two_batch))
        })
}

fn leads_to_same(one: &Record, two: &Record) -> bool {
    one.data_tid == two.data_tid || one.source.is_some() && one.source == two.source
}

fn is_same_body((one, one_batch): (&Body, &Batch), (two, two_batch): (&Body, &Batch)) -> bool {
    let hash = |bytes: &[u8]| <[u8; 32]>::from(Sha256::digest(bytes));
    match (one, two) {
        (Body::Deleted, Body::Deleted) => true,
        (Body::Bytes(one), Body::Bytes(two)) => {
            one_batch.bytes[one.clone()] == two_batch.bytes[two.clone()]
        }
        (Body::Hash(one), Body::Hash(two)) => one == two,
        (Body::Hash(one), Body::Bytes(two)) => *one == hash(&two_batch.bytes[two.clone()]),
        (Body::Bytes(one), Body::Hash(two)) => *two == hash(&one_batch.bytes[one.clone()]),
        (Body::Deleted, _) | (_, Body::Deleted) => false,
    }
}

/// Whether two pickles are of equal dicts.
fn is_same_extension(one: &[u8], two: &[u8]) -> bool {
    let dict = |pickle: &[u8]| match pickle {
        [] => Some(Value::Dict(Vec::new())),
        pickle => decode_extension(pickle, &Limits::OBJECTS).ok().map(Value::into_owned),
    };
    match (dict(one), dict(two)) {
        (Some(one), Some(two)) => is_same(&one, &two),
        _ => false,
    }
}

fn is_same(one: &Value<'_>, two: &Value<'_>) -> bool {
    match (one, two) {
        (Value::Dict(one), Value::Dict(two)) => {
            let has = |key, value| two.iter().any(|(k, v)| k == key && is_same(value, v));
            one.len() == two.len() && one.iter().all(|(key, value)| has(key, value))
        }
        (one, two) => one == two,
    }
}

#[cfg(test)]
mod tests {
    use zodium_memorystorage::MemoryStorage;
    use zodium_storage::Applier;

    use super::*;

    /// Records of a transaction: oid, byte that fills the data, length; 0 for a deletion.
    type Records = Vec<(u64, u8, usize)>;

    fn storage(transactions: &[(&[u8], Records)]) -> MemoryStorage {
        let storage = MemoryStorage::new();
        let mut applier = Applier::new(&storage);
        for (tid, (extension, records)) in (1..).map(Tid).zip(transactions) {
            let status = TransactionStatus::Normal;
            let (user, description) = (&b"user"[..], &b""[..]);
            let head = LogItem::Transaction { tid, status, user, description, extension };
            applier.apply(head).unwrap();
            for (oid, fill, length) in records {
                let data = vec![*fill; *length];
                let data = (*length > 0).then_some(&data[..]);
                applier.apply(LogItem::Record { oid: Oid(*oid), data, data_tid: None }).unwrap();
            }
        }
        applier.finish().unwrap();
        storage
    }

    fn compared(one: &MemoryStorage, two: &MemoryStorage) -> Option<Difference> {
        compare(one, two, TidRange::default(), &mut |_| ()).unwrap()
    }

    #[test]
    fn logs_longer_than_a_batch_are_compared_to_their_ends() {
        let large = |last: u8| -> Vec<(&[u8], Records)> {
            let records = |n: u8| vec![(1, n, 1 << 20), (2, n, 9), (3, last, 9 << 17)];
            (0..6).map(|n| (&b""[..], records(n))).collect()
        };
        let one = storage(&large(7));
        assert_eq!(compared(&one, &storage(&large(7))), None);
        let first = Difference::Different { tid: Tid(1) };
        assert_eq!(compared(&one, &storage(&large(8))), Some(first));
        let shorter = storage(&large(7)[..5]);
        let missing = |present_in| Some(Difference::Missing { tid: Tid(6), present_in });
        assert_eq!(compared(&one, &shorter), missing(1));
        assert_eq!(compared(&shorter, &one), missing(2));
        let range = TidRange::until(Tid(5));
        assert_eq!(compare(&one, &shorter, range, &mut |_| ()).unwrap(), None);
    }

    #[test]
    fn a_transaction_larger_than_memory_is_compared_by_hashes() {
        let huge = |last| storage(&[(b"", vec![(1, 1, 20 << 20), (2, 2, 5), (3, last, 5)])]);
        assert_eq!(compared(&huge(3), &huge(3)), None);
        let different = Some(Difference::Different { tid: Tid(1) });
        assert_eq!(compared(&huge(3), &huge(4)), different);
        // In another order, one side has a hash where the other has data.
        let other = storage(&[(b"", vec![(3, 3, 5), (2, 2, 5), (1, 1, 20 << 20)])]);
        assert_eq!(compared(&huge(3), &other), None);
        assert_eq!(compared(&huge(4), &other), different);
    }

    #[test]
    fn extensions_are_compared_as_dicts_and_records_by_oid() {
        let (one, two) =
            (&b"\x80\x03}(U\x01aK\x01U\x01bK\x02u."[..], &b"}(U\x01bK\x02U\x01aK\x01u."[..]);
        let records = || vec![(1, 1, 1), (2, 1, 0)];
        let reordered = vec![(2, 1, 0), (1, 1, 1)];
        let first = storage(&[(one, records())]);
        assert_eq!(compared(&first, &storage(&[(two, reordered)])), None);
        let different = Some(Difference::Different { tid: Tid(1) });
        assert_eq!(compared(&first, &storage(&[(b"", records())])), different);
        assert_eq!(compared(&storage(&[(b"}.", records())]), &storage(&[(b"", records())])), None);
        assert_eq!(compared(&first, &storage(&[(one, vec![(1, 1, 1)])])), different);
        assert_eq!(compared(&first, &storage(&[(one, vec![(1, 1, 1), (2, 1, 1)])])), different);
    }
}
