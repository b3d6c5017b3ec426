//! What a hold has changed, as it is noted for the log.

use std::sync::atomic::Ordering;

use zodium_keylog::Sync;
use zodium_keyspace::{Hold, Logged, Removed, Tie};
use zodium_resp::OwnedRequest;

use super::items;
use crate::Server;
use crate::call::Call;
use crate::commands::{Command, flags};
use crate::fail::Outcome;

/// What the log gets for a command.
#[derive(Debug, Default)]
pub(crate) struct Instead {
    /// These in place of the command itself: what it does depends on chance, or on storages.
    pub(crate) requests: Option<Vec<OwnedRequest>>,
    /// Ties that its first key has got.
    pub(crate) ties: Vec<Tie>,
}

impl Call<'_, '_> {
    /// Executes a command, and notes what the log gets of it.
    pub(crate) fn execute(
        &mut self,
        command: &'static Command,
        run: fn(&mut Call) -> Outcome,
    ) -> Outcome {
        let (touches, database) = (self.hold.touches, self.hold.database);
        // A command that has waited was counted when it came.
        let counters = self.client.and_then(|client| {
            self.hold.changer = client.id();
            self.server.statistics.workers.get(client.shared.worker.load(Ordering::Relaxed))
        });
        let begun = counters.map(|counters| (counters, counters.begin(command)));
        let outcome = run(self);
        if let Some((counters, begun)) = begun {
            counters.end(&begun, outcome.is_err());
        }
        self.remember(command);
        // Scripts note each of their commands.
        let is_noted = self.hold.is_journaled && self.hold.touches > touches;
        if is_noted && command.has(flags::WRITE) {
            self.note(database);
        }
        outcome
    }

    /// Has the log get a request in place of this one.
    pub(crate) fn log_instead<'w>(&mut self, words: impl IntoIterator<Item = &'w [u8]>) {
        if self.hold.is_journaled {
            let request = words.into_iter().collect();
            self.instead.requests.get_or_insert_default().push(request);
        }
    }

    /// Has the log get a tie of the first key in place of the command.
    pub(crate) fn log_tie(&mut self, tie: &Tie) {
        if self.hold.is_journaled {
            self.instead.requests.get_or_insert_default();
            self.instead.ties.push(tie.clone());
        }
    }

    fn note(&mut self, database: usize) {
        let hold = &mut *self.hold;
        note_removals(hold);
        begin(hold);
        let Instead { requests, ties } = std::mem::take(&mut self.instead);
        match requests {
            None => items::write_command(&mut hold.journal, database, self.arguments),
            Some(requests) => {
                for request in &requests {
                    items::write_command(&mut hold.journal, database, request.arguments());
                }
            }
        }
        let key = self.arguments.word(1);
        ties.iter().for_each(|tie| items::write_tie(&mut hold.journal, database, key, tie));
    }
}

/// Begins the record of a hold, if that has not begun.
fn begin(hold: &mut Hold) {
    if hold.journal.is_empty() {
        items::write_time(&mut hold.journal, hold.now);
    }
}

/// Notes keys that are gone because their time is past, or a tie of theirs was cut. Commands that
/// are noted later have not seen them.
fn note_removals(hold: &mut Hold) {
    if hold.expired_noted >= hold.expired.len() {
        return;
    }
    begin(hold);
    let mut journal = std::mem::take(&mut hold.journal);
    for Removed { database, key } in &hold.expired[hold.expired_noted..] {
        items::write_removal(&mut journal, *database, key);
    }
    hold.expired_noted = hold.expired.len();
    hold.journal = journal;
}

impl Server {
    /// The same hold, which keeps a journal if there is a log.
    pub(crate) fn journaling<'k>(&self, mut hold: Hold<'k>) -> Hold<'k> {
        hold.notes_altered = self.tracking.is_any();
        if let Some(keeper) = self.keeper.get() {
            hold.is_journaled = true;
            hold.safe = keeper.safe();
        }
        hold
    }

    /// Appends what a hold has changed to the log, before its stripes are unlocked. Returns the
    /// position that its answer waits for; 0 for none.
    pub(crate) fn log_hold(&self, hold: &mut Hold) -> u64 {
        let Some(keeper) = self.keeper.get() else { return 0 };
        note_removals(hold);
        let is_always = keeper.log.sync() == Sync::Always;
        let mut position = 0;
        if !hold.journal.is_empty() {
            position = keeper.log.append(&hold.journal);
            hold.journal.clear();
        }
        hold.end_touches((is_always && position > 0).then_some(position));
        if is_always { position.max(hold.seen()) } else { 0 }
    }

    /// Notes an item of the record of a hold, if there is a log.
    pub(crate) fn note_item(&self, hold: &mut Hold, write: impl FnOnce(&mut Vec<u8>)) {
        if hold.is_journaled {
            begin(hold);
            write(&mut hold.journal);
        }
    }

    /// Appends keys that were removed without a hold. Their stripe is locked.
    pub(crate) fn log_removed(&self, removed: &[Removed], now: u64) -> Option<Logged> {
        let keeper = self.keeper.get()?;
        let mut record = Vec::new();
        items::write_time(&mut record, now);
        for Removed { database, key } in removed {
            items::write_removal(&mut record, *database, key);
        }
        let position = keeper.log.append(&record);
        (keeper.log.sync() == Sync::Always).then(|| Logged { position, safe: keeper.safe() })
    }

    /// Appends a record of one item that changes no key; its position, 0 without a log.
    pub(crate) fn log_item(&self, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let Some(keeper) = self.keeper.get() else { return 0 };
        let mut record = Vec::new();
        items::write_time(&mut record, zodium_keyspace::now());
        write(&mut record);
        keeper.log.append(&record)
    }
}
