//! The recovered file, written from its start to its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use zodium_disk::{Disk, DiskFile, OpenMode};
use zodium_types::{Tid, TransactionStatus};

use super::moved::Moved;
use crate::FileStorageError;
use crate::format::create_like;
use crate::format::{
    DATA_HEADER_BYTES, DataHeader, Magic, POINTER_BYTES, TRANSACTION_HEADER_BYTES,
    TransactionHeader, record_bytes,
};
use crate::read::Positions;
use crate::scan::{DataEntry, Window};

/// The buffer is written out when it has grown to this.
const WRITE_BYTES: usize = 1 << 20;

/// The file that is being written.
pub(super) struct Output {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    written: u64,
    /// Current records in this file.
    current: Positions,
    pub(super) moved: Moved,
    pub(super) last_tid: Tid,
}

/// A transaction to write.
pub(super) struct Planned {
    /// Where it stood.
    pub(super) position: u64,
    pub(super) tid: Tid,
    pub(super) status: TransactionStatus,
    /// Lengths of user, description and extension, which stand behind its header; all 0 when
    /// they are lost.
    pub(super) metadata: [u16; 3],
    pub(super) records: Vec<PlannedRecord>,
    /// Where the copy of its length stood, if the transaction was whole.
    pub(super) records_end: Option<u64>,
}

/// A record to write.
pub(super) struct PlannedRecord {
    pub(super) entry: DataEntry,
    pub(super) body: Body,
}

/// What a record holds.
#[derive(Clone, Copy)]
pub(super) enum Body {
    /// Data that stand at this position of the damaged file.
    Data { position: u64, length: u64 },
    /// The same as a record of this file, by its position; 0 for a deletion.
    Back(u64),
}

impl Body {
    fn data_length(self) -> u64 {
        match self {
            Body::Data { length, .. } => length,
            Body::Back(_) => 0,
        }
    }
}

impl Output {
    /// A new file, with the permissions of the file at `model`.
    pub(super) fn create(
        disk: &dyn Disk,
        path: &Path,
        model: &Path,
        magic: Magic,
    ) -> Result<Output, FileStorageError> {
        let file = create_like(disk, path, OpenMode::CreateNew, model)?;
        Ok(Output {
            path: path.to_owned(),
            file,
            buffer: magic.bytes().to_vec(),
            written: 0,
            current: Positions::new(),
            moved: Moved::default(),
            last_tid: Tid::ZERO,
        })
    }

    pub(super) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// Where the next byte goes.
    pub(super) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Copies a transaction out of the damaged file.
    pub(super) fn write(
        &mut self,
        source: &mut Window,
        planned: &Planned,
    ) -> Result<(), FileStorageError> {
        let start = self.position();
        let [user_length, description_length, extension_length] = planned.metadata;
        let (tid, status) = (planned.tid, planned.status.to_byte());
        let mut header = TransactionHeader {
            tid,
            length: 0,
            status,
            user_length,
            description_length,
            extension_length,
        };
        let records = planned.records.iter().map(|r| record_bytes(r.body.data_length()));
        header.length = header.records_offset() + records.sum::<u64>();
        header.write(&mut self.buffer);
        let metadata = planned.position + TRANSACTION_HEADER_BYTES as u64;
        self.copy(source, metadata, header.metadata_bytes())?;
        self.moved.add(planned.position, start, header.records_offset());
        let mut positions = Vec::with_capacity(planned.records.len());
        for record in &planned.records {
            positions.push(self.position());
            self.write_record(source, planned, start, record)?;
        }
        if let Some(end) = planned.records_end {
            self.moved.add(end, self.position(), POINTER_BYTES);
        }
        self.buffer.extend_from_slice(&header.length.to_be_bytes());
        if planned.status != TransactionStatus::Undone {
            for (record, position) in planned.records.iter().zip(positions) {
                self.current.publish(record.entry.header.oid, position);
            }
        }
        self.last_tid = tid;
        self.flush_if_full()
    }

    fn write_record(
        &mut self,
        source: &mut Window,
        planned: &Planned,
        transaction: u64,
        record: &PlannedRecord,
    ) -> Result<(), FileStorageError> {
        let (entry, position) = (record.entry, self.position());
        // A pack cuts histories off so.
        let is_cut = planned.status == TransactionStatus::Packed && entry.header.previous == 0;
        let previous = self.current.position(entry.header.oid).filter(|_| !is_cut);
        let header = DataHeader {
            oid: entry.header.oid,
            tid: planned.tid,
            previous: previous.unwrap_or(0),
            transaction,
            version_length: 0,
            data_length: record.body.data_length(),
        };
        header.write(&mut self.buffer);
        match record.body {
            Body::Data { position, length } => self.copy(source, position, length)?,
            Body::Back(back) => self.buffer.extend_from_slice(&back.to_be_bytes()),
        }
        let is_alike = header.data_length == entry.header.data_length;
        let alike = if is_alike { header.record_bytes() } else { DATA_HEADER_BYTES as u64 };
        self.moved.add(entry.position, position, alike);
        self.flush_if_full()
    }

    fn copy(
        &mut self,
        source: &mut Window,
        start: u64,
        length: u64,
    ) -> Result<(), FileStorageError> {
        let end = start + length;
        let mut position = start;
        while position < end {
            let count = (end - position).min(WRITE_BYTES as u64) as usize;
            let bytes = source.bytes(position, count);
            self.buffer.extend_from_slice(bytes.unwrap_or_default());
            position += count as u64;
            self.flush_if_full()?;
        }
        // What was planned was readable then; zeros must not be taken for it.
        match source.is_unreadable(start..end) {
            true => {
                Err(FileStorageError::io(source.path(), "read", std::io::ErrorKind::Other.into()))
            }
            false => Ok(()),
        }
    }

    /// Returns when all is on stable storage.
    pub(super) fn finish(&mut self, disk: &dyn Disk) -> Result<u64, FileStorageError> {
        self.flush()?;
        self.file
            .sync()
            .and_then(|()| disk.sync_folder_of(&self.path))
            .map_err(|error| FileStorageError::io(&self.path, "sync", error))?;
        Ok(self.written)
    }

    fn flush_if_full(&mut self) -> Result<(), FileStorageError> {
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), FileStorageError> {
        let bytes = self.buffer.len() as u64;
        let written = self.file.write_all_at(&self.buffer, self.written);
        written.map_err(|error| FileStorageError::writing(&self.path, "write", bytes, error))?;
        self.written += bytes;
        self.buffer.clear();
        Ok(())
    }
}
