//! Allows appends again after a failed write or sync, without a restart.
//!
//! A failed sync is not repeated: the system marks bytes that it could not write as written, so the
//! next sync proves nothing. Instead all unacknowledged bytes are cut, and the storage relies only
//! on what it can verify. It reads the acknowledged end of the file back from the device and
//! compares it with checksums in memory. Then the device must make a probe durable and give it
//! back. Nothing in memory points behind the end: bytes that are not durable are not published.
//!
//! A refused transaction does not come back: closing the storage cuts it too. Only a crash between
//! its failure and the cut may leave it in the file, as a whole. Its client got an error.

use std::path::Path;

use zodium_disk::DiskFile;
use zodium_disk::with_suffix;

use super::append_state::WriteFailure;
use super::appender::{Appender, bytes_ahead, reserve_error};
use super::recent::{Piece, RecentAppends};
use crate::FileStorageError;
use crate::format::DataFile;
use crate::read::{LogFile, step_scan};

/// Bytes read back at once.
const WINDOW_BYTES: u64 = 1 << 20;
/// Written behind the end to test whether the device takes it. It is shorter than a transaction
/// header, so an opening after a crash takes it for an unfinished transaction and cuts it.
const PROBE: &[u8; 8] = b"reopened";

impl Appender {
    /// Allows appends again after a failure, if the device holds the acknowledged bytes and can be
    /// written to. Does nothing if nothing failed. Returns whether the name of a packed file had to
    /// be made durable.
    ///
    /// Blocking. The caller makes sure that nothing is [appended](Appender::append) meanwhile.
    ///
    /// # Errors
    /// Appends stay refused, and the caller can try again. [`FileStorageError::Corrupt`] names the
    /// place where the device does not hold the acknowledged bytes. [`FileStorageError::Changed`]:
    /// another program changed the file, and must change it back. Other errors name the failed
    /// operation.
    pub(crate) fn reopen(&self, log: &LogFile) -> Result<bool, FileStorageError> {
        let (failure, end, promised, recent) = {
            let state = self.state.lock();
            (state.failure, state.end, state.promised, state.recent.clone())
        };
        match failure {
            None => return Ok(false),
            Some(WriteFailure::Unknown) => {
                return Err(FileStorageError::Failed { path: self.file.path.clone() });
            }
            Some(WriteFailure::Name | WriteFailure::Log | WriteFailure::Changed) => {}
        }
        // Before any change: a file that another program changed is left as it is.
        self.check_unchanged()?;
        if failure == Some(WriteFailure::Name) {
            self.make_name_durable()?;
        }
        let (file, path) = (log.file.as_ref(), self.file.path.as_path());
        verify(log, end, &recent)?;
        self.state.lock().refuse_up_to(end + PROBE.len() as u64);
        cut(path, file, end)?;
        probe(path, file, end)?;
        cut(path, file, end)?;
        verify(log, end, &recent)?;
        // Cutting has freed the space reserved for voted transactions.
        let reserve = |bytes: u64| file.reserve(end, end + bytes).map(|()| end + bytes);
        let reserved = reserve(promised + bytes_ahead(end)).or_else(|_| reserve(promised));
        let reserved = reserved.map_err(|error| reserve_error(path, error, promised))?;
        self.state.lock().reopened(reserved);
        Ok(failure == Some(WriteFailure::Name))
    }

    /// Makes another change in the folder durable. That makes the earlier rename durable too.
    fn make_name_durable(&self) -> Result<(), FileStorageError> {
        let DataFile { disk, path, .. } = &*self.file;
        let probe = with_suffix(path, ".reopening");
        let failed = |operation| {
            let probe = probe.clone();
            move |error| FileStorageError::io(&probe, operation, error)
        };
        let opened = disk.open(&probe, zodium_disk::OpenMode::Create);
        opened.map_err(failed("create"))?;
        disk.sync_folder_of(&probe).map_err(failed("sync the folder of"))?;
        disk.remove(&probe).map_err(failed("remove"))?;
        disk.sync_folder_of(&probe).map_err(failed("sync the folder of"))
    }
}

/// Compares the bytes on the device with the acknowledged bytes.
fn verify(log: &LogFile, end: u64, recent: &RecentAppends) -> Result<(), FileStorageError> {
    let start = recent.pieces().next().map_or(end, |piece| piece.range.start);
    let forgotten = log.file.forget_cached(start);
    forgotten.map_err(|error| FileStorageError::io(&log.path, "drop from memory", error))?;
    let mut buffer = Vec::new();
    for piece in recent.pieces() {
        verify_piece(log, piece, &mut buffer)?;
    }
    // There are no checksums in memory of older bytes: only verify that a transaction ends here.
    step_scan(log).transaction_before(end).map(drop)
}

fn verify_piece(
    log: &LogFile,
    piece: &Piece,
    buffer: &mut Vec<u8>,
) -> Result<(), FileStorageError> {
    let range = &piece.range;
    let (mut position, mut crc32c) = (range.start, 0);
    while position < range.end {
        let count = (range.end - position).min(WINDOW_BYTES);
        buffer.resize(count as usize, 0);
        read_back(log, buffer, position)?;
        crc32c = crc32c::crc32c_append(crc32c, buffer);
        position += count;
    }
    if crc32c != piece.crc32c {
        let what = format!(
            "the device does not hold the {} bytes that were committed here",
            range.end - range.start
        );
        return Err(FileStorageError::corrupt(&log.path, range.start, what));
    }
    Ok(())
}

fn read_back(log: &LogFile, buffer: &mut [u8], position: u64) -> Result<(), FileStorageError> {
    log.file.read_exact_at(buffer, position).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            let what = "the file ends before what was committed";
            FileStorageError::corrupt(&log.path, position, what)
        }
        _ => FileStorageError::io(&log.path, "read back", error),
    })
}

fn cut(path: &Path, file: &dyn DiskFile, end: u64) -> Result<(), FileStorageError> {
    let cut = file.set_length(end).and_then(|()| file.sync());
    cut.map_err(|error| FileStorageError::io(path, "cut", error))
}

/// Writes and syncs a probe in the same block as the end of the log, and reads it back.
fn probe(path: &Path, file: &dyn DiskFile, end: u64) -> Result<(), FileStorageError> {
    let written = file.write_all_at(PROBE, end).and_then(|()| file.sync());
    written.map_err(|error| FileStorageError::writing(path, "write", PROBE.len() as u64, error))?;
    let mut read = [0; PROBE.len()];
    let found = file.forget_cached(end).and_then(|()| file.read_exact_at(&mut read, end));
    found.map_err(|error| FileStorageError::io(path, "read back", error))?;
    if read != *PROBE {
        let what = "the device does not hold what was just written and synced";
        return Err(FileStorageError::corrupt(path, end, what));
    }
    Ok(())
}
