//! Compaction: a log of the keys as they are takes the place of the one with all their changes.
//!
//! Key decision: no moment is frozen. The keys are copied part by part while clients go on, and
//! keys that change meanwhile are noted and copied again. At the end few are left: these are copied
//! with all stripes locked, and from that moment on changes go to the new file.
//!
//! A large value is copied piece by piece, and its stripe is unlocked in between. If it changes
//! meanwhile, the pieces are thrown away: its key is noted, and copied later.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use zodium_keylog::{Reached, Replacement};
use zodium_keyspace::{DATABASES, EntryRef, Hold, Keyspace, Stripes, Tie, Word, now};

use super::items;
use super::keeper::Keeper;
use crate::Server;
use crate::parked::Parked;

/// Keys that are copied while their part is locked.
const KEYS_AT_ONCE: usize = 256;
/// Bytes of a large value that are copied while its stripe is locked.
const PIECE_BYTES: usize = 16 << 10;
/// Changed keys that may be copied with all stripes locked.
const LAST_KEYS_MAX: usize = 128;
/// Rounds of copying changed keys, before all stripes are locked in any case.
const ROUNDS_MAX: usize = 8;
/// The first of these rounds that begin with a sync. It takes time, in which more keys change, and
/// leaves little for the one with which the new log takes the place of the old one.
const SYNCS: usize = 2;
/// The time of holds that see keys whose time is past too. A command whose worker has an older time
/// may still find them.
const ALL_TIMES: u64 = 0;

/// Compacts the log if it has doubled since the last time. After a failure it waits a while.
pub(crate) fn compact_if_due(server: &Arc<Server>) {
    let Some(keeper) = server.log.keeper() else { return };
    let (length, base) = keeper.log.lengths();
    let setting = |name| u64::try_from(server.settings.number(name)).unwrap_or(0);
    if length <= base || !keeper.may_compact(now()) {
        return;
    }
    let percentage = setting("auto-aof-rewrite-percentage");
    let has_grown = length - base >= base.saturating_mul(percentage) / 100;
    let is_large = length >= setting("auto-aof-rewrite-min-size");
    if percentage > 0 && has_grown && is_large && keeper.log.failure().is_none() {
        begin(server, |_| ());
    }
}

/// Compacts the log on a thread of its own; false if that goes on already, or there is none.
pub(super) fn begin(server: &Arc<Server>, done: impl FnOnce(bool) + Send + 'static) -> bool {
    let Some(keeper) = server.log.keeper() else { return false };
    if !keeper.begin_compaction() {
        return false;
    }
    let server = Arc::clone(server);
    let thread = std::thread::Builder::new().name("key-compaction".to_owned());
    let started = thread.spawn(move || done(compact(&server)));
    if let Err(error) = &started {
        tracing::error!(%error, "cannot start the thread that compacts the log of keys");
        keeper.drop_compaction();
    }
    started.is_ok()
}

/// Compacts the log of a server; whether that succeeded.
pub(crate) fn compact(server: &Server) -> bool {
    let Server { keyspace, beside, log, .. } = server;
    let compaction = |keeper| Compaction { keyspace, parked: &beside.parked, keeper };
    log.keeper().is_some_and(|keeper| compaction(keeper).execute())
}

/// A compaction of the log of a keyspace.
struct Compaction<'a> {
    keyspace: &'a Keyspace,
    parked: &'a Parked,
    keeper: &'a Keeper,
}

impl Compaction<'_> {
    /// Compacts the log; whether that succeeded.
    fn execute(&self) -> bool {
        let keeper = self.keeper;
        let ((before, _), replacements) = (keeper.log.lengths(), keeper.log.replacements());
        let outcome = self.copy_keys();
        self.keyspace.end_changes();
        let is_done = match outcome {
            Ok(position) => {
                // Also while the log cannot be written: the writer tries to replace it anyway.
                wait_while(|| keeper.log.has_replacement());
                let (after, _) = keeper.log.lengths();
                // The writer has said why if it failed.
                let is_replaced = keeper.log.replacements() > replacements;
                wait_while(|| {
                    let is_durable = keeper.log.has_reached(position, Reached::Written);
                    is_replaced && !is_durable && keeper.log.failure().is_none()
                });
                if is_replaced {
                    tracing::info!("compacted the log of keys from {before} to {after} bytes");
                }
                is_replaced
            }
            Err(error) => {
                let path = keeper.log.path().display();
                tracing::error!(%error, "cannot compact {path}: it stays as it is");
                false
            }
        };
        keeper.end_compaction(is_done);
        is_done
    }

    /// Writes all keys to a new log, and has it take the place of the old one.
    fn copy_keys(&self) -> io::Result<u64> {
        'anew: loop {
            let mut replacement = self.keeper.log.begin_replacement()?;
            self.keyspace.begin_changes();
            for part in 0..Keyspace::PARTS {
                for database in 0..DATABASES {
                    self.copy_part(&mut replacement, part, database)?;
                }
            }
            for round in 0..ROUNDS_MAX {
                if round < SYNCS {
                    replacement.sync()?;
                }
                let changes = self.keyspace.take_changes();
                if changes.is_whole {
                    continue 'anew;
                }
                for (database, key) in &changes.keys {
                    self.copy_key(&mut replacement, *database, key)?;
                }
                if changes.keys.len() <= LAST_KEYS_MAX {
                    break;
                }
            }
            if let Some(position) = self.switch(replacement) {
                return Ok(position);
            }
        }
    }

    /// Copies what has changed last, with all stripes locked; `None` if whole databases have.
    fn switch(&self, replacement: Replacement) -> Option<u64> {
        let mut hold = self.keyspace.lock(Stripes::ALL, ALL_TIMES);
        let changes = self.keyspace.take_changes();
        if changes.is_whole {
            return None;
        }
        let mut last: Vec<Vec<u8>> = Vec::new();
        for (database, key) in &changes.keys {
            last.push(record_of_key(&mut hold, *database, key));
        }
        Some(self.parked.with_records(|records| {
            last.extend(records);
            self.keeper.log.replace(replacement, &last)
        }))
    }

    /// Copies a part of a database.
    fn copy_part(
        &self,
        replacement: &mut Replacement,
        part: usize,
        database: usize,
    ) -> io::Result<()> {
        let mut next = Some(0);
        while let Some(position) = next {
            let (mut records, mut large) = (Vec::new(), Vec::<Word>::new());
            let mut visit = |entry: EntryRef<'_>, ties: &[Tie]| match entry.is_large() {
                true => large.push(entry.key().into()),
                false => records.push(record_of(database, entry, ties)),
            };
            next = self.keyspace.visit_part(part, database, position, KEYS_AT_ONCE, &mut visit);
            for record in &records {
                replacement.append(record)?;
            }
            for key in &large {
                self.copy_in_pieces(replacement, database, key)?;
            }
        }
        Ok(())
    }

    /// Copies a key that has changed.
    fn copy_key(
        &self,
        replacement: &mut Replacement,
        database: usize,
        key: &[u8],
    ) -> io::Result<()> {
        let mut hold = self.keyspace.lock(self.keyspace.stripe(key), ALL_TIMES);
        hold.database = database;
        if hold.entry(key).is_some_and(EntryRef::is_large) {
            drop(hold);
            return self.copy_in_pieces(replacement, database, key);
        }
        let record = record_of_key(&mut hold, database, key);
        drop(hold);
        replacement.append(&record)
    }

    /// Copies a large value piece by piece, unless it changes meanwhile: it is noted then.
    fn copy_in_pieces(
        &self,
        replacement: &mut Replacement,
        database: usize,
        key: &[u8],
    ) -> io::Result<()> {
        let (mut record, mut start, mut place) = (Vec::new(), 0, None);
        items::write_time(&mut record, 0);
        let mut is_begun = false;
        while !is_begun || place.is_some() {
            let is_same = self.keyspace.visit_unchanged(database, key, &mut |entry, ties| {
                if !is_begun {
                    start = items::begin_entry(&mut record, database, key, entry.expires_at());
                }
                place = zodium_rdb::write_part(&mut record, entry.value(), place, PIECE_BYTES);
                if place.is_none() {
                    items::end_entry(&mut record, start, database, key, ties);
                }
            });
            if !is_same {
                return Ok(());
            }
            is_begun = true;
        }
        replacement.append(&record)
    }
}

fn wait_while(is_so: impl Fn() -> bool) {
    while is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The record of what a key has now.
fn record_of_key(hold: &mut Hold, database: usize, key: &[u8]) -> Vec<u8> {
    hold.database = database;
    match hold.entry(key) {
        Some(entry) => record_of(database, entry, &hold.ties(key)),
        None => {
            let mut record = Vec::new();
            items::write_time(&mut record, hold.now);
            items::write_removal(&mut record, database, key);
            record
        }
    }
}

fn record_of(database: usize, entry: EntryRef<'_>, ties: &[Tie]) -> Vec<u8> {
    let mut record = Vec::new();
    items::write_time(&mut record, 0);
    items::write_entry(&mut record, database, entry.key(), entry.value(), entry.expires_at(), ties);
    record
}
