//! Appends transactions to the log: many at once, with one sync.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use zodium_disk::{DiskFile, FileIdentity};
use zodium_storage::{Access, SpooledData};
use zodium_types::{Durations, Oid, Tid, TransactionMetadata, TransactionStatus};

use super::recent::RecentAppends;
use crate::checksums::{Batch, RecordSum};
use crate::format::{
    DataHeader, LostSectors, POINTER_BYTES, TRANSACTION_HEADER_BYTES, TransactionHeader,
    record_bytes,
};
use crate::read::{LogFile, new_record};
use crate::{FileStorage, FileStorageError};

/// Bodies of at least this size are written from their own memory. Smaller ones are gathered into
/// one buffer, which is cheaper than a longer vector of pieces.
const GATHER_BYTES_MAX: usize = 64 << 10;
/// Size of the buffer at which it is written to the file.
const WRITE_BYTES: usize = 1 << 20;
/// Space is reserved ahead in steps of an eighth of the file, within these bounds.
const RESERVE_BYTES_MIN: u64 = 1 << 20;
const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// A transaction ready to be written; only its position in the file is undecided.
#[derive(Debug)]
pub struct NewTransaction {
    /// Its tid, later than all before it.
    pub tid: Tid,
    /// Normal, or the status of the transaction that this one copies.
    pub status: TransactionStatus,
    /// User, description, extension.
    pub metadata: TransactionMetadata,
    /// The records in the order of their arrival.
    pub records: Vec<NewRecord>,
}

/// One record of a [`NewTransaction`].
#[derive(Debug)]
pub struct NewRecord {
    /// The object.
    pub oid: Oid,
    /// What the transaction does with the object.
    pub body: NewBody,
}

/// Content of a new record.
#[derive(Clone, Debug)]
pub enum NewBody {
    /// New data, at least one byte.
    Data(Bytes),
    /// New data in a spool.
    Spooled(SpooledData),
    /// The same data as the record at this position of the file.
    SameAs(u64),
    /// The object is deleted.
    Deleted,
}

impl NewTransaction {
    /// Bytes that the transaction takes in the file.
    pub fn bytes(metadata: &TransactionMetadata, records: &[NewRecord]) -> u64 {
        let records: u64 = records.iter().map(|record| record_bytes(record.data_length())).sum();
        header(Tid::ZERO, TransactionStatus::Normal, metadata, records).length + POINTER_BYTES
    }
}

impl NewRecord {
    fn data_length(&self) -> u64 {
        match &self.body {
            NewBody::Data(data) => data.len() as u64,
            NewBody::Spooled(data) => data.length(),
            NewBody::SameAs(_) | NewBody::Deleted => 0,
        }
    }
}

/// Space reserved for a voted transaction. [`FileStorage::release`] gives it back, and
/// [`FileStorage::append`] uses it up.
#[derive(Debug, PartialEq, Eq)]
pub struct Reservation {
    bytes: u64,
}

/// Positions of the records of an appended transaction, for [`FileStorage::publish`].
#[derive(Debug)]
pub struct Appended {
    start: u64,
    end: u64,
    records: Vec<(Oid, u64, NewBody)>,
    previous: Vec<u64>,
    tid: Tid,
}

impl Appended {
    /// Tid of the transaction.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// The objects with a new revision, each once, in the order of their records.
    pub fn oids(&self) -> Vec<Oid> {
        let mut seen = rustc_hash::FxHashSet::default();
        let oids = self.records.iter().map(|(oid, ..)| *oid);
        oids.filter(|oid| seen.insert(*oid)).collect()
    }
}

/// The failed operation. It decides what the storage must verify before it appends again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFailure {
    /// A write or sync of the log failed: the device may hold anything behind the end of the log.
    Log,
    /// The sync of a packed file's name failed: the name may revert to the file before the pack.
    Name,
    /// Another program changed the file. The storage leaves it alone until the change is reverted.
    Changed,
    /// It is unknown which file the name stands for.
    Unknown,
}

/// What the log writer knows about the end of the file.
#[derive(Debug)]
pub(crate) struct AppendState {
    /// Identity of the file that transactions are appended to.
    pub(crate) identity: FileIdentity,
    last_tid: Tid,
    /// End of the last transaction written. It is ahead of the readers' end until published.
    end: u64,
    /// A failed write may have left bytes up to here. Equal to `end` if no write failed.
    refused_end: u64,
    /// Bytes reserved for voted transactions and not yet written.
    promised: u64,
    /// End of the space that the file system has reserved.
    reserved_end: u64,
    /// Why appends are refused until the file is reopened.
    pub(crate) failure: Option<WriteFailure>,
    /// Checksums of the transactions written last, to verify what the device holds.
    pub(crate) recent: RecentAppends,
    /// When space was refused; `None` once space was granted after that.
    full_since: Option<Instant>,
    /// No space can be reserved at the moment: the storage is asking the file system for more, or a
    /// pack replaces the log.
    suspended: bool,
    buffer: Vec<u8>,
}

/// While this value exists, no transaction can reserve space, so a pack knows how much the new log
/// must hold. See [`FileStorage::suspend_reserving`].
pub(crate) struct Suspension<'a> {
    storage: &'a FileStorage,
    /// End of the last transaction written.
    pub(crate) end: u64,
    /// Bytes reserved. Transactions may release some of them meanwhile.
    pub(crate) promised: u64,
}

impl AppendState {
    pub(crate) fn new(identity: FileIdentity, end: u64, last_tid: Tid) -> AppendState {
        AppendState {
            identity,
            last_tid,
            end,
            refused_end: end,
            promised: 0,
            reserved_end: end,
            failure: None,
            recent: RecentAppends::default(),
            full_since: None,
            suspended: false,
            buffer: Vec::new(),
        }
    }

    pub(crate) fn last_tid(&self) -> Tid {
        self.last_tid
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// End of the last transaction written, which is durable.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// End of the bytes that a failed write may have left.
    pub(crate) fn refused_end(&self) -> u64 {
        self.refused_end
    }

    /// Notes that bytes up to `end` may be in the file, from a write that began or failed. They are
    /// not part of the log.
    pub(crate) fn refuse_up_to(&mut self, end: u64) {
        self.refused_end = self.refused_end.max(end);
    }

    /// Notes a failed append. `refused_end`: where it would have ended, if it had begun.
    fn fail(&mut self, error: &FileStorageError, refused_end: Option<u64>) {
        let is_change = refused_end.is_none() || matches!(error, FileStorageError::Changed { .. });
        self.failure = Some(if is_change { WriteFailure::Changed } else { WriteFailure::Log });
        self.refuse_up_to(refused_end.unwrap_or(0));
    }

    /// Bytes reserved for voted transactions.
    pub(crate) fn promised(&self) -> u64 {
        self.promised
    }

    /// Allows appends again. The file system has reserved space up to `reserved_end`.
    pub(crate) fn reopened(&mut self, reserved_end: u64) {
        self.failure = None;
        self.refused_end = self.end;
        self.reserved_end = reserved_end;
    }

    pub(crate) fn was_full_within(&self, age: Duration) -> bool {
        self.full_since.is_some_and(|since| since.elapsed() < age)
    }
}

impl FileStorage {
    /// Reserves space for `bytes` more, so that a full disk refuses a vote and never a finish.
    /// `None`: the file system has to be asked, but access is non-blocking.
    pub fn reserve(
        &self,
        bytes: u64,
        access: Access,
    ) -> Result<Option<Reservation>, FileStorageError> {
        let mut state = self.append.lock();
        while state.suspended {
            if access == Access::NonBlocking {
                return Ok(None);
            }
            self.reserving_resumed.wait(&mut state);
        }
        self.check_writable(&state)?;
        let wanted = state.end + state.promised + bytes;
        if let Some(quota_bytes) = self.quota_bytes.filter(|quota| wanted > *quota) {
            state.full_since = Some(Instant::now());
            let path = self.path.clone();
            return self.quota.noting(Err(FileStorageError::Quota { path, bytes, quota_bytes }));
        }
        let mut is_ample = false;
        if wanted > state.reserved_end {
            if access == Access::NonBlocking {
                return Ok(None);
            }
            // Ask the device without the lock: votes take that lock on worker threads.
            let (start, ahead) = (state.reserved_end, bytes_ahead(state.end));
            state.suspended = true;
            drop(state);
            let file = Arc::clone(&self.log().file);
            let reserve = |end: u64| file.reserve(start, end).map(|()| end);
            let reserved = reserve(wanted + ahead).or_else(|_| reserve(wanted));
            state = self.append.lock();
            state.suspended = false;
            self.reserving_resumed.notify_all();
            state.full_since = reserved.is_err().then(Instant::now);
            let reserved = reserved.map_err(|error| reserve_error(&self.path, error, bytes));
            state.reserved_end = self.space.noting(reserved)?;
            is_ample = state.reserved_end > wanted;
        }
        state.full_since = None;
        state.promised += bytes;
        drop(state);
        self.space.note_granted(&self.path, bytes, is_ample);
        if let Some(quota_bytes) = self.quota_bytes {
            self.quota.note_granted(&self.path, quota_bytes - (wanted - bytes), false);
        }
        Ok(Some(Reservation { bytes }))
    }

    /// Releases the space of a transaction that will not be written.
    pub fn release(&self, reservation: Reservation) {
        let mut state = self.append.lock();
        state.promised = state.promised.saturating_sub(reservation.bytes);
    }

    /// Writes transactions one after the other and syncs once. They are durable when this returns.
    /// [`FileStorage::publish`] then makes them visible. One caller at a time; no two of the
    /// transactions may write the same object.
    ///
    /// After an error none of the transactions is committed. Every later call fails until the file
    /// is [reopened](FileStorage::reopen): the storage cannot know what a failed write or sync left
    /// on the device.
    pub fn append(
        &self,
        transactions: &[NewTransaction],
        reservations: Vec<Reservation>,
    ) -> Result<Vec<Appended>, FileStorageError> {
        let mut state = self.append.lock();
        self.check_writable(&state)?;
        let (start, identity) = (state.end, state.identity);
        let buffer = std::mem::take(&mut state.buffer);
        // Used up in any case: a transaction that is not written releases its space.
        let promised: u64 = reservations.iter().map(|reservation| reservation.bytes).sum();
        // The lock guards the numbers: votes go on while this thread waits for the device.
        drop(state);

        let log = self.log();
        let syncs = &self.syncs;
        let sums = log.checksums.is_some().then(Batch::default);
        let lost = log.checksums.is_some().then(LostSectors::default);
        let announce = |batch: &Batch| {
            log.checksums.as_ref().map_or(Ok(true), |checksums| self.announce(checksums, batch))
        };
        let mut writer = Writer {
            log: &log,
            position: start,
            written: start,
            crc32c: 0,
            buffer,
            sums,
            lost,
            announce: &announce,
            is_unannounced: false,
            is_rehearsal: false,
            syncs,
        };
        let checked = self.check_file(identity, start..=start);
        let is_begun = checked.is_ok();
        let rehearsed = checked.and_then(|()| writer.rehearse(transactions));
        let written = rehearsed.and_then(|()| writer.write_all(transactions));
        // Check again: bytes in a file that has lost its name must not be acknowledged.
        let written = written.and_then(|appended| {
            self.check_file(identity, writer.position..=writer.position).map(|()| appended)
        });
        let (end, crc32c) = (writer.position, writer.crc32c);
        if let (Ok(_), Some(checksums), Some(sums)) = (&written, &log.checksums, &writer.sums) {
            // Not before the sync: an entry states that its bytes are durable.
            checksums.writing().append(start, end, sums);
            self.settle_announcement(checksums, writer.is_unannounced);
        }
        let mut buffer = writer.buffer;
        buffer.clear();

        let mut state = self.append.lock();
        state.buffer = buffer;
        // Together with the end: reserved space becomes used space.
        state.promised = state.promised.saturating_sub(promised);
        match written {
            Ok(appended) => {
                assert!(end >= start, "the log only grows");
                state.recent.note(start..end, crc32c);
                (state.end, state.refused_end) = (end, end);
                state.last_tid = transactions.iter().fold(state.last_tid, |t, n| t.max(n.tid));
                Ok(appended)
            }
            Err(error) => {
                let refused_end = is_begun.then(|| start + total_bytes(transactions));
                state.fail(&error, refused_end);
                Err(error)
            }
        }
    }

    /// Makes an appended transaction visible to readers. Call it in the order of the appends.
    pub fn publish(&self, appended: Appended) {
        let log = self.log();
        // Extend the end first: a reader that finds the new position must be allowed to read there.
        log.extend_to(appended.end);
        for ((oid, position, body), previous) in appended.records.into_iter().zip(appended.previous)
        {
            if let NewBody::Data(data) = body {
                log.cache.insert(new_record(position, appended.tid, previous, Some(data)));
            }
            log.positions.publish(oid, position);
            self.note_oid(oid);
        }
        log.note_indexed(appended.end);
        log.tid_index.pass_appended(appended.tid, appended.start);
    }

    pub(crate) fn release_reservation(&self) -> Result<(), FileStorageError> {
        let mut state = self.append.lock();
        if state.reserved_end > state.end && state.failure.is_none() {
            // Cutting the file at its present length frees the space reserved behind it.
            let file = Arc::clone(&self.log().file);
            file.set_length(state.end)
                .map_err(|error| FileStorageError::io(&self.path, "cut", error))?;
            state.reserved_end = state.end;
        }
        Ok(())
    }

    fn check_writable(&self, state: &AppendState) -> Result<(), FileStorageError> {
        match (self.read_only, state.is_failed()) {
            (true, _) => Err(FileStorageError::ReadOnly { path: self.path.clone() }),
            (_, true) => Err(FileStorageError::Failed { path: self.path.clone() }),
            _ => Ok(()),
        }
    }

    /// Stops reservations of space until the suspension is dropped. The caller must also keep
    /// appends away until then.
    pub(crate) fn suspend_reserving(&self) -> Result<Suspension<'_>, FileStorageError> {
        let mut state = self.append.lock();
        while state.suspended {
            self.reserving_resumed.wait(&mut state);
        }
        self.check_writable(&state)?;
        state.suspended = true;
        Ok(Suspension { storage: self, end: state.end, promised: state.promised })
    }
}

impl Suspension<'_> {
    /// Reserves space behind `end` of another file for the voted transactions.
    pub(crate) fn reserve(
        &self,
        file: &dyn DiskFile,
        path: &Path,
        end: u64,
    ) -> Result<u64, FileStorageError> {
        let reserve = |bytes: u64| file.reserve(end, end + bytes).map(|()| end + bytes);
        reserve(self.promised + bytes_ahead(end))
            .or_else(|_| reserve(self.promised))
            .map_err(|error| reserve_error(path, error, self.promised))
    }

    /// Makes `log` the file that transactions are appended to.
    pub(crate) fn replace_log(&self, log: LogFile, identity: FileIdentity, reserved_end: u64) {
        let mut state = self.storage.append.lock();
        assert_eq!(state.end, self.end, "nothing is appended while reserving is suspended");
        state.identity = identity;
        (state.end, state.refused_end) = (log.end(), log.end());
        state.recent = RecentAppends::default();
        state.reserved_end = reserved_end;
        self.storage.replace_log(log);
    }

    /// Refuses commits from now on: the content of the device is unknown.
    pub(crate) fn fail(&self, failure: WriteFailure) {
        self.storage.append.lock().failure = Some(failure);
    }
}

impl Drop for Suspension<'_> {
    fn drop(&mut self) {
        self.storage.append.lock().suspended = false;
        self.storage.reserving_resumed.notify_all();
    }
}

pub(crate) fn bytes_ahead(end: u64) -> u64 {
    (end / 8).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX)
}

pub(crate) fn reserve_error(path: &Path, error: std::io::Error, bytes: u64) -> FileStorageError {
    FileStorageError::writing(path, "reserve space", bytes, error)
}

/// Lays out transactions as bytes and writes them to the file.
struct Writer<'a> {
    log: &'a LogFile,
    /// Position of the next byte.
    position: u64,
    /// The bytes before this position are in the file; the rest is in the buffer.
    written: u64,
    /// CRC-32C of the bytes in the file.
    crc32c: u32,
    buffer: Vec<u8>,
    /// Checksums of the laid out bytes, taken while they are in memory.
    sums: Option<Batch>,
    /// Finds out whether the bytes look as if sectors were lost. Only used with checksums.
    lost: Option<LostSectors>,
    /// Announces a batch: makes its checksums durable before its bytes are written.
    announce: &'a dyn Fn(&Batch) -> Result<bool, FileStorageError>,
    /// Whether the batch should have been announced, but could not be.
    is_unannounced: bool,
    /// Whether nothing is written to the file.
    is_rehearsal: bool,
    syncs: &'a Durations,
}

/// Whether the buffer holds all bytes of the transactions before the first write.
fn is_written_at_once(transactions: &[NewTransaction]) -> bool {
    let mut records = transactions.iter().flat_map(|new| &new.records);
    records.all(|record| record.data_length() < GATHER_BYTES_MAX as u64)
        && total_bytes(transactions) < WRITE_BYTES as u64
}

/// Bytes that transactions take in the file.
fn total_bytes(transactions: &[NewTransaction]) -> u64 {
    transactions.iter().map(|new| NewTransaction::bytes(&new.metadata, &new.records)).sum()
}

impl Writer<'_> {
    fn write_all(
        &mut self,
        transactions: &[NewTransaction],
    ) -> Result<Vec<Appended>, FileStorageError> {
        let mut appended = Vec::with_capacity(transactions.len());
        for transaction in transactions {
            appended.push(self.write_transaction(transaction)?);
        }
        self.announce_if_lost()?;
        self.flush()?;
        let started = Instant::now();
        self.log.file.sync().map_err(|error| self.failed("sync", error))?;
        self.syncs.record(started.elapsed());
        Ok(appended)
    }

    /// Lays out the transactions once without writing them, to see whether they must be announced.
    /// Needed only for those written in pieces; others are complete in the buffer before the write.
    fn rehearse(&mut self, transactions: &[NewTransaction]) -> Result<(), FileStorageError> {
        if self.lost.is_none() || is_written_at_once(transactions) {
            return Ok(());
        }
        let start = self.position;
        self.is_rehearsal = true;
        for transaction in transactions {
            self.write_transaction(transaction)?;
        }
        self.is_rehearsal = false;
        self.announce_if_lost()?;
        self.buffer.clear();
        self.position = start;
        (self.sums, self.lost) = (Some(Batch::default()), None);
        Ok(())
    }

    fn announce_if_lost(&mut self) -> Result<(), FileStorageError> {
        if let (Some(sums), Some(lost)) = (&self.sums, &self.lost)
            && lost.seen()
        {
            self.is_unannounced = !(self.announce)(sums)?;
        }
        Ok(())
    }

    fn write_transaction(&mut self, new: &NewTransaction) -> Result<Appended, FileStorageError> {
        let start = self.position;
        let bytes = new.records.iter().map(|record| record_bytes(record.data_length())).sum();
        let header = header(new.tid, new.status, &new.metadata, bytes);
        let header_start = self.buffer.len();
        header.write(&mut self.buffer);
        self.buffer.extend_from_slice(&new.metadata.user);
        self.buffer.extend_from_slice(&new.metadata.description);
        self.buffer.extend_from_slice(&new.metadata.extension);
        if let Some(sums) = &mut self.sums {
            sums.begin(start, &self.buffer[header_start..]);
        }
        if let Some(lost) = &mut self.lost {
            lost.begin(start);
            lost.add(&self.buffer[header_start..]);
        }
        self.position += header.records_offset();

        let mut records = Vec::with_capacity(new.records.len());
        let mut previous = Vec::with_capacity(new.records.len());
        for record in &new.records {
            // The index does not have this batch yet. That is correct: object locks are held until
            // publication, so no two transactions of a batch write the same object.
            let before = self.log.positions.position(record.oid).unwrap_or(0);
            records.push((record.oid, self.position, record.body.clone()));
            previous.push(before);
            self.write_record(record, new.tid, before, start)?;
        }
        assert_eq!(self.position - start, header.length, "a transaction as long as announced");
        self.buffer.extend_from_slice(&header.length.to_be_bytes());
        if let Some(sums) = &mut self.sums {
            sums.end(header.length);
        }
        if let Some(lost) = &mut self.lost {
            lost.add(&header.length.to_be_bytes());
            lost.end();
        }
        self.position += POINTER_BYTES;
        if new.status == TransactionStatus::Undone {
            // The records of an undone transaction do not count, now as after the next opening.
            records.clear();
        }
        Ok(Appended { start, end: self.position, records, previous, tid: new.tid })
    }

    fn write_record(
        &mut self,
        record: &NewRecord,
        tid: Tid,
        previous: u64,
        transaction: u64,
    ) -> Result<(), FileStorageError> {
        let data_length = record.data_length();
        let header = DataHeader {
            oid: record.oid,
            tid,
            previous,
            transaction,
            version_length: 0,
            data_length,
        };
        let header_start = self.buffer.len();
        header.write(&mut self.buffer);
        let mut sum = RecordSum::new(self.position, &self.buffer[header_start..]);
        if let Some(lost) = &mut self.lost {
            lost.add(&self.buffer[header_start..]);
        }
        let mut write = |bytes: &[u8]| {
            sum.add(bytes);
            self.write_data(bytes)
        };
        match &record.body {
            NewBody::Data(data) => write(data)?,
            NewBody::Spooled(data) => data.each_chunk(write)?,
            NewBody::SameAs(back) => write(&back.to_be_bytes())?,
            NewBody::Deleted => write(&0_u64.to_be_bytes())?,
        }
        if let Some(sums) = &mut self.sums {
            sums.record(sum);
        }
        self.position += header.record_bytes();
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn write_data(&mut self, data: &[u8]) -> Result<(), FileStorageError> {
        if let Some(lost) = &mut self.lost {
            lost.add(data);
        }
        if data.len() < GATHER_BYTES_MAX {
            self.buffer.extend_from_slice(data);
            return Ok(());
        }
        self.flush()?;
        self.write(data)
    }

    fn flush(&mut self) -> Result<(), FileStorageError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), FileStorageError> {
        if self.is_rehearsal {
            return Ok(());
        }
        let written = self.log.file.write_all_at(bytes, self.written);
        written.map_err(|error| self.failed("write", error))?;
        self.written += bytes.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        Ok(())
    }

    fn failed(&self, operation: &'static str, error: std::io::Error) -> FileStorageError {
        FileStorageError::io(self.path(), operation, error)
    }

    fn path(&self) -> &Path {
        &self.log.path
    }
}

/// Header of a transaction whose metadata was checked to fit.
fn header(
    tid: Tid,
    status: TransactionStatus,
    metadata: &TransactionMetadata,
    record_bytes: u64,
) -> TransactionHeader {
    // `TransactionMetadata::check`, at begin, keeps these lengths within 16 bits.
    let length = |field: &[u8]| u16::try_from(field.len()).unwrap_or(u16::MAX);
    let mut header = TransactionHeader {
        tid,
        length: TRANSACTION_HEADER_BYTES as u64 + record_bytes,
        status: status.to_byte(),
        user_length: length(&metadata.user),
        description_length: length(&metadata.description),
        extension_length: length(&metadata.extension),
    };
    header.length += header.metadata_bytes();
    header
}
