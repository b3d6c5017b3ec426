//! The log of a server's changes, if the server has one.

use std::sync::OnceLock;
use std::time::Duration;

use zodium_keylog::{CloseError, Reached, Sync};
use zodium_keyspace::{Hold, Logged, Removed, now};

use super::items;
use super::journal::{begin, note_removals};
use super::keeper::{Keeper, sync_named};
use crate::clients::Clients;
use crate::fail::{Fail, Outcome};
use crate::local::Letter;

/// The log of a server's changes; empty if it keeps keys in memory only.
#[derive(Default)]
pub(crate) struct KeyLog(OnceLock<Keeper>);

impl KeyLog {
    /// Has changes kept from now on. Called once.
    pub(super) fn open(&self, keeper: Keeper) {
        if self.0.set(keeper).is_err() {
            tracing::error!("the RESP server has its log already");
        }
    }

    /// The log, and what belongs to it.
    #[inline]
    pub(crate) fn keeper(&self) -> Option<&Keeper> {
        self.0.get()
    }

    /// Writes and syncs what was not yet. Changes after this are lost.
    pub(crate) fn close(&self) -> Result<(), CloseError> {
        self.keeper().map_or(Ok(()), |keeper| keeper.log.close())
    }

    /// Why the log cannot be written, if it cannot.
    pub(crate) fn failure(&self) -> Option<String> {
        self.keeper().and_then(|keeper| keeper.log.failure())
    }

    /// The error of commands that write while the log cannot be written.
    pub(crate) fn check(&self) -> Outcome {
        match self.failure() {
            None => Ok(()),
            Some(reason) => {
                Err(Fail::text(format!("MISCONF Errors writing to the AOF file: {reason}")))
            }
        }
    }

    /// Follows the setting `appendfsync`.
    pub(crate) fn apply_sync(&self, name: &str) {
        let Some(keeper) = self.keeper() else { return };
        if let Some(sync) = sync_named(name)
            && sync != keeper.log.sync()
        {
            keeper.log.set_sync(sync);
        }
    }

    /// Tells the workers whose clients wait that the log has got further, or has failed.
    pub(super) fn tell_progress(&self, clients: &Clients) {
        let Some(keeper) = self.keeper() else { return };
        for worker in keeper.take_waiting() {
            clients.send(worker, Letter::Logged);
        }
    }

    /// Has a hold keep a journal, if there is a log.
    pub(crate) fn follow(&self, hold: &mut Hold) {
        if let Some(keeper) = self.keeper() {
            hold.journal.is_kept = true;
            hold.seen.safe = keeper.safe();
        }
    }

    /// Notes an item of the record of a hold, if there is a log.
    pub(crate) fn note_item(&self, hold: &mut Hold, write: impl FnOnce(&mut Vec<u8>)) {
        if hold.journal.is_kept {
            begin(hold);
            write(&mut hold.journal.record);
        }
    }

    /// Appends what a hold has changed, before its stripes are unlocked. Returns the position that
    /// its answer waits for; 0 for none. That is not only so under `always`: memory for what is not
    /// written is limited, and a client whose answer waits sends no more.
    pub(crate) fn append(&self, hold: &mut Hold) -> u64 {
        let Some(keeper) = self.keeper() else { return 0 };
        note_removals(hold);
        let is_always = keeper.log.sync() == Sync::Always;
        let mut position = 0;
        if !hold.journal.record.is_empty() {
            position = keeper.log.append(&hold.journal.record);
            hold.journal.record.clear();
        }
        hold.end_touches((is_always && position > 0).then_some(position));
        match is_always {
            true => position.max(hold.seen.last()),
            false => keeper.must_reach(position, hold.now),
        }
    }

    /// Appends keys that were removed without a hold. Their stripe is locked.
    pub(crate) fn append_removed(&self, removed: &[Removed], now: u64) -> Option<Logged> {
        let keeper = self.keeper()?;
        let mut record = Vec::new();
        items::write_time(&mut record, now);
        for Removed { database, key } in removed {
            items::write_removal(&mut record, *database, key);
        }
        let position = keeper.log.append(&record);
        (keeper.log.sync() == Sync::Always).then(|| Logged { position, safe: keeper.safe() })
    }

    /// Appends a record of one item that changes no key; its position, 0 without a log.
    pub(crate) fn append_item(&self, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let Some(keeper) = self.keeper() else { return 0 };
        let mut record = Vec::new();
        items::write_time(&mut record, now());
        write(&mut record);
        keeper.log.append(&record)
    }

    /// Waits until everything so far is as safe as the log makes it.
    ///
    /// # Errors
    /// Why the log cannot be written.
    pub(crate) fn wait_for_all(&self) -> Result<(), String> {
        let Some(keeper) = self.keeper() else { return Ok(()) };
        let end = keeper.log.end();
        // The setting may change meanwhile.
        let wanted = || match keeper.log.sync() {
            Sync::Always | Sync::EverySecond => Reached::Synced,
            Sync::No => Reached::Written,
        };
        while !keeper.log.has_reached(end, wanted()) {
            if let Some(reason) = keeper.log.failure() {
                return Err(format!("the log of keys cannot be written: {reason}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits while much is ahead of the log.
    pub(super) fn let_follow(&self) {
        let Some(keeper) = self.keeper() else { return };
        while keeper.must_reach(keeper.log.end(), 0) > 0 && keeper.log.failure().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
