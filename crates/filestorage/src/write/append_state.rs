//! What the log writer and the votes share: the end of the log, and the space behind it.

use std::time::Instant;

use zodium_disk::FileIdentity;
use zodium_types::Tid;

use super::recent::RecentAppends;
use crate::FileStorageError;

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
    pub(super) identity: FileIdentity,
    /// The latest tid that readers see.
    pub(super) last_tid: Tid,
    /// End of the last transaction written, which is durable. It is ahead of the readers' end until
    /// published.
    pub(super) end: u64,
    /// A failed write may have left bytes up to here. Equal to `end` if no write failed.
    pub(super) refused_end: u64,
    /// Bytes reserved for voted transactions and not yet written.
    pub(super) promised: u64,
    /// End of the space that the file system has reserved.
    pub(super) reserved_end: u64,
    /// Why appends are refused until the file is reopened.
    pub(super) failure: Option<WriteFailure>,
    /// Checksums of the transactions written last, to verify what the device holds.
    pub(super) recent: RecentAppends,
    /// When space was refused; `None` once space was granted after that.
    pub(super) full_since: Option<Instant>,
    /// No space can be reserved at the moment: the storage is asking the file system for more, or a
    /// pack replaces the log.
    pub(super) suspended: bool,
    pub(super) buffer: Vec<u8>,
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

    pub(crate) fn is_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Notes that bytes up to `end` may be in the file, from a write that began or failed. They are
    /// not part of the log.
    pub(crate) fn refuse_up_to(&mut self, end: u64) {
        self.refused_end = self.refused_end.max(end);
    }

    /// Notes a failed append. `refused_end`: where it would have ended, if it had begun.
    pub(super) fn fail(&mut self, error: &FileStorageError, refused_end: Option<u64>) {
        let is_change = refused_end.is_none() || matches!(error, FileStorageError::Changed { .. });
        self.failure = Some(if is_change { WriteFailure::Changed } else { WriteFailure::Log });
        self.refuse_up_to(refused_end.unwrap_or(0));
    }

    /// Allows appends again. The file system has reserved space up to `reserved_end`.
    pub(crate) fn reopened(&mut self, reserved_end: u64) {
        self.failure = None;
        self.refused_end = self.end;
        self.reserved_end = reserved_end;
    }
}
