//! Packs a storage while commits and loads go on.
//!
//! Finding what is in use takes no lock. Old revisions go in chunks, so that a commit waits for one
//! of them at most. What is not in use goes then, in chunks too. A commit could refer to it, so
//! each chunk begins with a look at the commits since, and at the undos that are voted and
//! unfinished. A later undo finds no old revision any more that refers to what went.
//!
//! The order to pack is noted before anything goes, as NEO does: transactions from before its time
//! cannot be undone any more, also where nothing of them goes. A pack that was interrupted has the
//! database smaller by some revisions; the next one takes the rest.

use std::sync::atomic::Ordering;
use std::time::Instant;

use tracing::info;
use zodium_storage::{Pack, PackOptions, PackStep, Packed, Read, StorageError};
use zodium_types::{Oid, Tid};

use super::SqlStorage;
use super::marking::Marking;
use super::reading::Packs;
use crate::driver::Connection;
use crate::packing::{self, Dropped, Packable};
use crate::{SqlError, Writer};

/// Objects that are looked at for old revisions at once, or dropped at once.
const OBJECTS: u32 = 200;
/// What a record takes besides its data, roughly.
const RECORD_BYTES: u64 = 100;

/// A pack under way.
struct Packing<'a> {
    storage: &'a SqlStorage,
    options: &'a PackOptions<'a>,
    until: Tid,
    /// The transaction that the order to pack is noted with.
    order: Tid,
    dropped: Dropped,
}

impl Pack for SqlStorage {
    fn pack(&self, until: Tid, options: &PackOptions<'_>) -> Result<Option<Packed>, StorageError> {
        Ok(self.pack_until(until, options)?)
    }
}

impl SqlStorage {
    fn pack_until(
        &self,
        until: Tid,
        options: &PackOptions<'_>,
    ) -> Result<Option<Packed>, SqlError> {
        let _alone = self.packing.lock();
        let started = Instant::now();
        let (order, database) = (self.last_tid(), self.database.path().display());
        let until = until.min(order);
        let (size_before, objects_before) = (self.size(), self.object_count());
        let dropped = Dropped::default();
        let mut packing = Packing { storage: self, options, until, order, dropped };
        packing.step(0)?;
        info!(%database, %until, gc = options.gc, "packing");
        let dangling = packing.run()?;
        let dropped = packing.dropped;
        if dropped.records == 0 {
            info!(%database, "packing would free nothing");
            return Ok(None);
        }
        let packed = Packed {
            size_before,
            size_after: self.size(),
            objects_before,
            objects_after: self.object_count(),
            dangling,
            ..Packed::default()
        };
        (options.packed)(&packed);
        info!(%database, bytes = packed.size_after, bytes_before = size_before,
            objects = packed.objects_after, objects_before, revisions = dropped.records,
            dangling_references = dangling, seconds = started.elapsed().as_secs_f64(), "packed");
        Ok(Some(packed))
    }

    fn note_dropped(&self, dropped: Dropped) {
        let bytes = dropped.bytes + dropped.records * RECORD_BYTES;
        let less = |all: u64| Some(all.saturating_sub(bytes));
        let _ = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.objects.fetch_sub(dropped.objects, Ordering::Relaxed);
    }
}

impl<'a> Packing<'a> {
    /// Runs the pack; the number of references that lead nowhere.
    fn run(&mut self) -> Result<u64, SqlError> {
        if !self.has_anything()? {
            return Ok(0);
        }
        let marked = if self.options.gc { Some(self.mark()?) } else { None };
        let dangling = marked.as_ref().map_or(0, |(marking, _)| marking.dangling);
        self.note_order()?;
        self.storage.views.begin_pack(&self.storage.database)?;
        let packed = self.drop_unneeded(marked);
        self.storage.views.end_pack();
        self.storage.freshness.note_pack();
        packed?;
        let order = self.order;
        self.storage.database.write(0, |writer| writer.note_packed(order))?;
        Ok(dangling)
    }

    /// Reports progress, and ends a pack that was cancelled.
    fn step(&self, done: u64) -> Result<(), SqlError> {
        let objects = self.storage.object_count().max(done);
        (self.options.progress)(PackStep::Marking, done, objects);
        match self.options.cancelled.load(Ordering::Relaxed) {
            true => {
                let path = self.storage.database.path().to_owned();
                Err(SqlError::PackCancelled { path })
            }
            false => Ok(()),
        }
    }

    /// Whether anything was committed at the pack time, and no pack has reached a later time.
    fn has_anything(&self) -> Result<bool, SqlError> {
        let (database, until) = (&self.storage.database, self.until);
        database.pool.with("look for objects", |connection| {
            // A cluster may have packed to a time after its last transaction.
            if until < Packs::read(connection)?.until().min(self.order) {
                return Ok(false);
            }
            for partition in database.partitions().all() {
                let (_, more) = packing::packable(connection, partition, Oid(0), until, 1)?;
                if more.is_some() {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// Finds what is in use, as far as transactions are committed by now; the last of these.
    fn mark(&self) -> Result<(Marking<'a>, Tid), SqlError> {
        let (storage, since) = (self.storage, self.storage.last_tid());
        let database = &storage.database;
        let snapshot = database.pool.snapshot(|| false)?;
        let mut marking = Marking::new(&database.place, database.partitions(), self.until);
        marking.root(&snapshot)?;
        marking.written_since(&snapshot, self.until)?;
        marking.follow(&snapshot, |done| self.step(done))?;
        match (marking.first_dangling, self.options.abort_on_dangling) {
            (Some(first), true) => Err(SqlError::Dangling {
                path: database.path().to_owned(),
                references: marking.dangling,
                first,
            }),
            _ => Ok((marking, since)),
        }
    }

    fn drop_unneeded(&mut self, marked: Option<(Marking<'_>, Tid)>) -> Result<(), SqlError> {
        self.drop_old_revisions()?;
        match marked {
            Some((marking, since)) => self.drop_garbage(marking, since),
            None => Ok(()),
        }
    }

    /// Drops the objects that are not in use, but none that a transaction after `since` uses, or
    /// one that is voted.
    fn drop_garbage(&mut self, mut marking: Marking<'_>, since: Tid) -> Result<(), SqlError> {
        let (storage, partitions) = (self.storage, self.storage.database.partitions());
        // Most commits since are looked at here, while others go on.
        let mut seen = storage.last_tid();
        let snapshot = storage.database.pool.snapshot(|| false)?;
        marking.written_since(&snapshot, since)?;
        marking.follow(&snapshot, |done| self.step(done))?;
        let unused = marking.unused(&snapshot)?;
        drop(snapshot);
        for chunk in unused.chunks(OBJECTS as usize) {
            let last = storage.last_tid();
            let (dropped, bytes) = storage.database.write_and_prune(0, |writer| {
                let connection = writer.connection;
                marking.written_since(connection, seen)?;
                marking.held(connection, writer.held())?;
                marking.follow(connection, |_| Ok(()))?;
                let mut dropped = Dropped::default();
                for oid in chunk.iter().copied().filter(|oid| !marking.used.contains(oid)) {
                    let object = [Packable { oid, end: Tid::MAX }];
                    let one = writer.drop_revisions(partitions.of_oid(oid), &object)?;
                    dropped.records += one.records;
                    dropped.objects += one.objects;
                }
                Ok(dropped)
            })?;
            self.note_dropped(Dropped { bytes, ..dropped });
            seen = last;
            self.step(marking.used.len() as u64)?;
        }
        Ok(())
    }

    /// Drops what lies before the revisions that are current at the pack time.
    fn drop_old_revisions(&mut self) -> Result<(), SqlError> {
        let (database, until) = (&self.storage.database, self.until);
        let mut seen = 0;
        for partition in database.partitions().all() {
            let mut from = Some(Oid(0));
            while let Some(start) = from {
                let find = |connection: &Connection| {
                    packing::packable(connection, partition, start, until, OBJECTS)
                };
                let (objects, next) = database.pool.with("look for old revisions", find)?;
                if !objects.is_empty() {
                    let change =
                        |writer: &mut Writer<'_>| writer.drop_revisions(partition, &objects);
                    let (dropped, bytes) = database.write_and_prune(0, change)?;
                    self.note_dropped(Dropped { bytes, ..dropped });
                }
                from = next;
                seen += u64::from(OBJECTS);
                self.step(seen.min(self.storage.object_count()))?;
            }
        }
        Ok(())
    }

    fn note_order(&self) -> Result<(), SqlError> {
        let (order, until) = (self.order, self.until);
        self.storage.database.write(0, |writer| writer.note_order(order, until))
    }

    fn note_dropped(&mut self, dropped: Dropped) {
        self.dropped.records += dropped.records;
        self.dropped.objects += dropped.objects;
        self.dropped.bytes += dropped.bytes;
        self.storage.note_dropped(dropped);
    }
}
