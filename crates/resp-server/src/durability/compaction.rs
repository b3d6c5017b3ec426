//! Compaction: a log of the keys as they are takes the place of the one with all their changes.
//!
//! Key decision: no moment is frozen. The keys are copied part by part while clients go on, and
//! keys that change meanwhile are noted and copied again. At the end few are left: these are copied
//! with all stripes locked, and from that moment on changes go to the new file.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zodium_keylog::{Log, Replacement};
use zodium_keyspace::{DATABASES, EntryRef, Hold, Keyspace, Stripes, Tie, now};

use super::items;
use crate::Server;

/// Keys that are copied while their part is locked.
const KEYS_AT_ONCE: usize = 256;
/// Changed keys that may be copied with all stripes locked.
const LAST_KEYS_MAX: usize = 128;
/// Rounds of copying changed keys, before all stripes are locked in any case.
const ROUNDS_MAX: usize = 8;
/// The time of holds that see keys whose time is past too. A command whose worker has an older time
/// may still find them.
const ALL_TIMES: u64 = 0;

impl Server {
    /// Compacts the log if it has doubled since the last time.
    pub(crate) fn compact_if_due(self: &Arc<Self>) {
        let Some(keeper) = self.keeper.get() else { return };
        let (length, base) = keeper.log.lengths();
        let setting = |name| u64::try_from(self.settings.number(name)).unwrap_or(0);
        if length <= base {
            return;
        }
        let percentage = setting("auto-aof-rewrite-percentage");
        let has_grown = length - base >= base.saturating_mul(percentage) / 100;
        let is_large = length >= setting("auto-aof-rewrite-min-size");
        if percentage > 0 && has_grown && is_large && keeper.log.failure().is_none() {
            self.begin_compaction(|_| ());
        }
    }

    /// Compacts the log on a thread of its own; false if that goes on already, or there is none.
    pub(crate) fn begin_compaction(
        self: &Arc<Self>,
        done: impl FnOnce(bool) + Send + 'static,
    ) -> bool {
        let Some(keeper) = self.keeper.get() else { return false };
        if keeper.is_compacting.swap(true, Ordering::AcqRel) {
            return false;
        }
        let server = Arc::clone(self);
        let thread = std::thread::Builder::new().name("key-compaction".to_owned());
        let started = thread.spawn(move || done(server.compact()));
        if let Err(error) = &started {
            tracing::error!(%error, "cannot start the thread that compacts the log of keys");
            keeper.is_compacting.store(false, Ordering::Release);
        }
        started.is_ok()
    }

    /// Compacts the log; whether that succeeded.
    pub(super) fn compact(&self) -> bool {
        let Some(keeper) = self.keeper.get() else { return false };
        let ((before, _), replacements) = (keeper.log.lengths(), keeper.log.replacements());
        let outcome = self.copy_keys(&keeper.log);
        self.keyspace.end_changes();
        let is_done = match outcome {
            Ok(position) => {
                while !keeper.log.has_reached(position, zodium_keylog::Reached::Written)
                    && keeper.log.failure().is_none()
                {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                let (after, _) = keeper.log.lengths();
                // The writer has said why if it failed.
                let is_replaced = keeper.log.replacements() > replacements;
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
        keeper.is_compacted.store(is_done, Ordering::Relaxed);
        if is_done {
            keeper.compacted_at.store(now() / 1000, Ordering::Relaxed);
        }
        keeper.is_compacting.store(false, Ordering::Release);
        is_done
    }

    /// Writes all keys to a new log, and has it take the place of the old one.
    fn copy_keys(&self, log: &Log) -> io::Result<u64> {
        'anew: loop {
            let mut copy = Copy { replacement: log.begin_replacement()?, record: Vec::new() };
            self.keyspace.begin_changes();
            for part in 0..Keyspace::PARTS {
                for database in 0..DATABASES {
                    copy.part(&self.keyspace, part, database)?;
                }
            }
            for _ in 0..ROUNDS_MAX {
                let changes = self.keyspace.take_changes();
                if changes.is_whole {
                    continue 'anew;
                }
                for (database, key) in &changes.keys {
                    let mut hold = self.keyspace.lock(self.keyspace.stripe(key), ALL_TIMES);
                    let record = copy.key(&mut hold, *database, key);
                    drop(hold);
                    copy.replacement.append(&record)?;
                }
                if changes.keys.len() <= LAST_KEYS_MAX {
                    break;
                }
            }
            copy.replacement.sync()?;
            if let Some(position) = self.switch(log, copy) {
                return Ok(position);
            }
        }
    }

    /// Copies what has changed last, with all stripes locked; `None` if whole databases have.
    fn switch(&self, log: &Log, mut copy: Copy) -> Option<u64> {
        let mut hold = self.keyspace.lock(Stripes::ALL, ALL_TIMES);
        let changes = self.keyspace.take_changes();
        if changes.is_whole {
            return None;
        }
        let mut last: Vec<Vec<u8>> = Vec::new();
        for (database, key) in &changes.keys {
            last.push(copy.key(&mut hold, *database, key));
        }
        Some(self.parked.with_records(|records| {
            last.extend(records);
            log.replace(copy.replacement, &last)
        }))
    }
}

/// A log of the keys as they are, which is being written.
struct Copy {
    replacement: Replacement,
    record: Vec<u8>,
}

impl Copy {
    /// Copies a part of a database.
    fn part(&mut self, keyspace: &Keyspace, part: usize, database: usize) -> io::Result<()> {
        let mut next = Some(0);
        while let Some(position) = next {
            let mut records: Vec<Vec<u8>> = Vec::new();
            next =
                keyspace.visit_part(part, database, position, KEYS_AT_ONCE, &mut |entry, ties| {
                    records.push(record_of(database, entry, ties));
                });
            for record in &records {
                self.replacement.append(record)?;
            }
        }
        Ok(())
    }

    /// The record of what a key has now.
    fn key(&mut self, hold: &mut Hold, database: usize, key: &[u8]) -> Vec<u8> {
        hold.database = database;
        match hold.entry(key) {
            Some(entry) => record_of(database, entry, &hold.ties(key)),
            None => {
                let mut record = std::mem::take(&mut self.record);
                record.clear();
                items::write_time(&mut record, hold.now);
                items::write_removal(&mut record, database, key);
                record
            }
        }
    }
}

fn record_of(database: usize, entry: EntryRef<'_>, ties: &[Tie]) -> Vec<u8> {
    let mut record = Vec::new();
    items::write_time(&mut record, 0);
    items::write_entry(&mut record, database, entry.key(), entry.value(), entry.expires_at(), ties);
    record
}
