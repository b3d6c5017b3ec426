//! Finds the objects in use: those that the root leads to at the pack time, those that a later
//! transaction wrote or refers to, and those that a voted undo brings back.

use rustc_hash::{FxHashMap, FxHashSet};
use tracing::warn;
use zodium_pickle::{Reference, references_of_record};
use zodium_types::{Oid, Tid};

use super::reading;
use crate::driver::{self, Connection, params};
use crate::held::HeldRow;
use crate::partitions::{Partitions, id, number};
use crate::place::Place;
use crate::{RevisionRow, SqlError, data, revisions};

/// References that lead nowhere, so many of which are logged.
const DANGLING_LOGGED: u64 = 10;
/// Objects that are listed at once.
const LISTED: u32 = 1000;

/// The objects in use that are known so far.
pub(super) struct Marking<'a> {
    place: &'a Place,
    partitions: Partitions,
    until: Tid,
    pub(super) used: FxHashSet<Oid>,
    /// References whose objects were not looked at yet, with the object that has them.
    left: Vec<(Oid, Oid)>,
    pub(super) dangling: u64,
    pub(super) first_dangling: Option<Oid>,
}

impl<'a> Marking<'a> {
    pub(super) fn new(place: &'a Place, partitions: Partitions, until: Tid) -> Marking<'a> {
        Marking {
            place,
            partitions,
            until,
            used: FxHashSet::default(),
            left: Vec::new(),
            dangling: 0,
            first_dangling: None,
        }
    }

    /// Begins at the root.
    pub(super) fn root(&mut self, connection: &Connection) -> Result<(), SqlError> {
        let root = self.before(connection, Oid::ROOT)?;
        if root.is_none_or(|root| root.data.is_none()) {
            return Err(SqlError::RootMissing { path: self.place.path().to_owned() });
        }
        self.left.push((Oid::ROOT, Oid::ROOT));
        Ok(())
    }

    /// Takes in what transactions after `since` wrote, and what they refer to.
    pub(super) fn written_since(
        &mut self,
        connection: &Connection,
        since: Tid,
    ) -> Result<(), SqlError> {
        for partition in self.partitions.all() {
            let written = written(connection, partition, since)
                .map_err(self.place.cannot("read later transactions"))?;
            for (oid, tid) in written {
                let row = revisions::at(connection, partition, oid, tid)
                    .map_err(self.place.cannot("read a later record"))?;
                self.left.push((oid, oid));
                if let Some(row) = row {
                    self.refer(oid, row)?;
                }
            }
        }
        Ok(())
    }

    /// Takes in what voted transactions bring back. Only their data are sure to be there still.
    pub(super) fn held(
        &mut self,
        connection: &Connection,
        held: &FxHashMap<i64, HeldRow>,
    ) -> Result<(), SqlError> {
        for (id, HeldRow { record: (oid, serial), .. }) in held {
            let data = data::read(connection, *id)
                .map_err(self.place.cannot("read the data of a voted record"))?;
            self.left.push((*oid, *oid));
            let (next, data, value_tid) = (None, Some(data), None);
            self.refer(*oid, RevisionRow { serial: *serial, next, data, value_tid })?;
        }
        Ok(())
    }

    /// Follows all references. `step` is told the number of objects in use now and then, and can
    /// end it with an error.
    pub(super) fn follow(
        &mut self,
        connection: &Connection,
        mut step: impl FnMut(u64) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        while let Some((oid, from)) = self.left.pop() {
            if !self.used.insert(oid) {
                continue;
            }
            if self.used.len().is_multiple_of(1024) {
                step(self.used.len() as u64)?;
            }
            match self.before(connection, oid)? {
                Some(row) => self.refer(oid, row)?,
                None => self.note_absent(connection, oid, from)?,
            }
        }
        Ok(())
    }

    /// The objects of a database that are not in use.
    pub(super) fn unused(&self, connection: &Connection) -> Result<Vec<Oid>, SqlError> {
        let mut unused = Vec::new();
        for partition in self.partitions.all() {
            let mut from = Some(Oid(0));
            while let Some(start) = from {
                let oids = listed(connection, partition, start)
                    .map_err(self.place.cannot("list the objects"))?;
                let is_full = oids.len() == LISTED as usize;
                from = oids.last().filter(|_| is_full).map(|last| Oid(last.0 + 1));
                unused.extend(oids.into_iter().filter(|oid| !self.used.contains(oid)));
            }
        }
        Ok(unused)
    }

    fn before(&self, connection: &Connection, oid: Oid) -> Result<Option<RevisionRow>, SqlError> {
        if i64::try_from(oid.0).is_err() {
            return Ok(None);
        }
        let partition = self.partitions.of_oid(oid);
        revisions::before(connection, partition, oid, self.until.next())
            .map_err(self.place.cannot("read an object"))
    }

    fn refer(&mut self, oid: Oid, row: RevisionRow) -> Result<(), SqlError> {
        let Some(data) = reading::data_of(self.place, oid, row)? else { return Ok(()) };
        let read = references_of_record(&data, &mut |reference| {
            if let Reference::Strong(to) = reference
                && !self.used.contains(&to)
            {
                self.left.push((to, oid));
            }
        });
        read.map_err(|source| SqlError::References { oid, source })
    }

    fn note_absent(
        &mut self,
        connection: &Connection,
        oid: Oid,
        from: Oid,
    ) -> Result<(), SqlError> {
        let later = revisions::current_serial(connection, self.partitions.of_oid(oid), oid)
            .map_err(self.place.cannot("look for an object"))?;
        if later.is_some() {
            return Ok(());
        }
        self.dangling += 1;
        self.first_dangling.get_or_insert(oid);
        if self.dangling <= DANGLING_LOGGED {
            warn!(database = %self.place.path().display(), %from, to = %oid,
                "pack: a reference leads to no object");
        }
        Ok(())
    }
}

fn written(connection: &Connection, partition: u32, since: Tid) -> driver::Result<Vec<(Oid, Tid)>> {
    let find = "SELECT oid, tid FROM obj WHERE partition = ?1 AND tid > ?2";
    let mut find = connection.prepare_cached(find)?;
    let row = |row: &driver::Row<'_>| Ok((Oid(id(row.get(0)?)), Tid(id(row.get(1)?))));
    find.query_map(params![partition, number(since.0)], row)?.collect()
}

fn listed(connection: &Connection, partition: u32, from: Oid) -> driver::Result<Vec<Oid>> {
    let find = "SELECT DISTINCT oid FROM obj WHERE partition = ?1 AND oid >= ?2 \
         ORDER BY oid LIMIT ?3";
    let mut find = connection.prepare_cached(find)?;
    let key = params![partition, number(from.0), LISTED];
    find.query_map(key, |row| Ok(Oid(id(row.get(0)?))))?.collect()
}
