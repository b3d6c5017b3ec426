//! What a hold has changed, as it is noted for the log.

use std::sync::atomic::Ordering;

use zodium_keyspace::{Hold, Removed, Tie};
use zodium_resp::OwnedRequest;

use super::items;
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
    /// Executes a command, counts it, and notes what the log gets of it.
    pub(crate) fn execute(
        &mut self,
        command: &'static Command,
        run: fn(&mut Call) -> Outcome,
    ) -> Outcome {
        let (touches, database) = (self.hold.journal.touches(), self.hold.database);
        // A command that has waited was counted when it came.
        let counters = self.client.and_then(|client| {
            self.hold.news.changer = client.id();
            self.server.statistics.workers.get(client.shared.worker.load(Ordering::Relaxed))
        });
        let begun = counters.map(|counters| (counters, counters.begin(command)));
        let outcome = run(self);
        // A script has nothing of its own: each of its commands takes what it has found.
        let found = self.hold.found.take();
        if let Some((counters, begun)) = begun {
            counters.end(&begun, outcome.is_err());
            if command.has(flags::READONLY | flags::READS) {
                counters.count_found(found);
            }
        }
        self.remember(command);
        // Scripts note each of their commands.
        let is_noted = self.hold.journal.is_kept && self.hold.journal.touches() > touches;
        if is_noted && command.has(flags::WRITE) {
            self.note(database);
        }
        outcome
    }

    /// Has the log get a request in place of this one.
    pub(crate) fn log_instead<'w>(&mut self, words: impl IntoIterator<Item = &'w [u8]>) {
        if self.hold.journal.is_kept {
            let request = words.into_iter().collect();
            self.instead.requests.get_or_insert_default().push(request);
        }
    }

    /// Has the log get ties of the first key in place of the command.
    pub(crate) fn log_ties(&mut self, ties: &[Tie]) {
        if self.hold.journal.is_kept {
            self.instead.requests.get_or_insert_default();
            self.instead.ties.extend_from_slice(ties);
        }
    }

    fn note(&mut self, database: usize) {
        let hold = &mut *self.hold;
        // The log has no cuts: without their removals this command would see such keys again.
        hold.remove_hidden();
        note_removals(hold);
        begin(hold);
        let Instead { requests, ties } = std::mem::take(&mut self.instead);
        match requests {
            None => items::write_command(&mut hold.journal.record, database, self.arguments),
            Some(requests) => {
                for request in &requests {
                    items::write_command(&mut hold.journal.record, database, request.arguments());
                }
            }
        }
        let key = self.arguments.word(1);
        ties.iter().for_each(|tie| items::write_tie(&mut hold.journal.record, database, key, tie));
    }
}

/// Begins the record of a hold, if that has not begun.
pub(super) fn begin(hold: &mut Hold) {
    if hold.journal.record.is_empty() {
        items::write_time(&mut hold.journal.record, hold.now);
    }
}

/// Notes keys that are gone because their time is past, or a tie of theirs was cut. Commands that
/// are noted later have not seen them.
pub(super) fn note_removals(hold: &mut Hold) {
    if hold.journal.expired >= hold.news.expired.len() {
        return;
    }
    begin(hold);
    let (journal, expired) = (&mut hold.journal, &hold.news.expired);
    for Removed { database, key } in &expired[journal.expired..] {
        items::write_removal(&mut journal.record, *database, key);
    }
    journal.expired = expired.len();
}
