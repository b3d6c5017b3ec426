//! Keeps votes from reserving space while a pack replaces the log.

use std::path::Path;

use zodium_disk::{DiskFile, FileIdentity};

use super::append_state::WriteFailure;
use super::appender::{Appender, bytes_ahead, reserve_error};
use super::recent::RecentAppends;
use crate::FileStorageError;
use crate::read::{LogFile, Reader};

/// While this value exists, no transaction can reserve space, so a pack knows how much the new log
/// must hold. See [`Appender::suspend_reserving`].
pub(crate) struct Suspension<'a> {
    appender: &'a Appender,
    /// End of the last transaction written.
    pub(crate) end: u64,
    /// Bytes reserved. Transactions may release some of them meanwhile.
    pub(crate) promised: u64,
}

impl Appender {
    /// Stops reservations of space until the suspension is dropped. The caller must also keep
    /// appends away until then.
    pub(crate) fn suspend_reserving(&self) -> Result<Suspension<'_>, FileStorageError> {
        let mut state = self.state.lock();
        while state.suspended {
            self.reserving_resumed.wait(&mut state);
        }
        self.check_writable(&state)?;
        state.suspended = true;
        Ok(Suspension { appender: self, end: state.end, promised: state.promised })
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

    /// Makes `log` the file that is read, and that transactions are appended to.
    pub(crate) fn replace_log(
        &self,
        reader: &Reader,
        log: LogFile,
        identity: FileIdentity,
        reserved_end: u64,
    ) {
        let mut state = self.appender.state.lock();
        assert_eq!(state.end, self.end, "nothing is appended while reserving is suspended");
        state.identity = identity;
        (state.end, state.refused_end) = (log.end(), log.end());
        state.recent = RecentAppends::default();
        state.reserved_end = reserved_end;
        reader.replace_log(log);
    }

    /// Refuses commits from now on: the content of the device is unknown.
    pub(crate) fn fail(&self, failure: WriteFailure) {
        self.appender.state.lock().failure = Some(failure);
    }
}

impl Drop for Suspension<'_> {
    fn drop(&mut self) {
        self.appender.state.lock().suspended = false;
        self.appender.reserving_resumed.notify_all();
    }
}
