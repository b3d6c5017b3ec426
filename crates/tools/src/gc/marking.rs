//! Marks what is in use, from the logs of the databases.

use zodium_pickle::{Reference, references_of_record};
use zodium_storage::{LogItem, Read, StorageError};
use zodium_types::{Oid, Tid};

use super::graph::Graph;
use crate::walk::walk;
use crate::{OidMap, TidRange, ToolError};

/// Databases by the names that references between them have.
pub struct Databases<'s> {
    /// Names and storages.
    pub all: Vec<(String, &'s dyn Read)>,
    /// Databases that are not there. References to them do not count.
    pub ignored: Vec<String>,
}

/// What is in use.
pub struct Marking<'d, 's> {
    databases: &'d Databases<'s>,
    pub(super) graph: Graph,
    /// By database: its log is read up to this transaction.
    read_up_to: Vec<Tid>,
    /// Revisions that were current after this transaction count.
    since: Tid,
}

/// Numbers of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Objects that are not deleted.
    pub objects: u64,
    /// Those that are garbage.
    pub garbage: u64,
    /// Objects that are referred to, and are not there.
    pub missing: u64,
}

/// A record of the log, with the references that count.
struct Revision<'a> {
    database: usize,
    oid: Oid,
    tid: Tid,
    data: Option<&'a [u8]>,
}

impl<'d, 's> Marking<'d, 's> {
    /// Reads all logs to their present ends. Revisions that are not current since transaction
    /// `since` do not count.
    ///
    /// # Errors
    /// Those of the storages; `Refused` for references to a database that is not given; damage for
    /// a record whose references cannot be read.
    pub fn of(databases: &'d Databases<'s>, since: Tid) -> Result<Marking<'d, 's>, ToolError> {
        let count = databases.all.len();
        let read_up_to = vec![Tid::ZERO; count];
        let mut marking = Marking { databases, graph: Graph::new(count), read_up_to, since };
        let mut young = Vec::new();
        for database in 0..count {
            marking.read_all(database, &mut young)?;
        }
        marking.graph.connect();
        for database in 0..count {
            let root = marking.graph.number(database, Oid::ROOT);
            marking.graph.mark(root);
        }
        young.into_iter().for_each(|number| marking.graph.mark(number));
        marking.graph.spread();
        Ok(marking)
    }

    /// Reads what was committed since. Gives objects that are in use, and that this collection has
    /// deleted, by database.
    ///
    /// # Errors
    /// As [`Marking::of`].
    pub fn catch_up(&mut self) -> Result<Vec<(usize, Oid, Tid)>, ToolError> {
        for database in 0..self.databases.all.len() {
            let storage = self.databases.all[database].1;
            let (min, last) = (self.read_up_to[database].next(), storage.last_tid());
            if last < min {
                continue;
            }
            let range = TidRange { min: Some(min), max: Some(last) };
            each_revision(storage, database, range, &mut |revision| self.add_new(&revision))?;
            self.read_up_to[database] = last;
        }
        let swept = self.graph.spread();
        Ok(swept.into_iter().map(|number| self.graph.place(number)).collect())
    }

    /// The garbage of a database in the order of oids: oids, and tids of the current revisions.
    pub fn garbage(&self, database: usize) -> Vec<(Oid, Tid)> {
        let numbers = self.graph.of_database(database).into_iter();
        numbers.filter(|number| self.is_garbage(*number)).map(|n| self.place(n)).collect()
    }

    /// Counts the objects of a database.
    pub fn summary(&self, database: usize) -> Summary {
        let mut summary = Summary::default();
        for number in self.graph.of_database(database) {
            summary.objects += u64::from(self.graph.is_alive(number));
            summary.garbage += u64::from(self.is_garbage(number));
            let is_missing = self.graph.is_marked(number) && self.graph.is_absent(number);
            // An empty database has no root, which is no fault.
            let is_root = self.graph.place(number).1 == Oid::ROOT;
            summary.missing += u64::from(is_missing && !is_root);
        }
        summary
    }

    /// Those of some objects that are still garbage, with their present serials.
    pub(super) fn still_garbage(&mut self, database: usize, oids: &[Oid]) -> Vec<(Oid, Tid)> {
        let numbers: Vec<u32> = oids.iter().map(|oid| self.graph.number(database, *oid)).collect();
        let numbers = numbers.into_iter();
        numbers.filter(|number| self.is_garbage(*number)).map(|n| self.place(n)).collect()
    }

    /// Notes that this collection has deleted an object, or has brought it back.
    pub(super) fn note_swept(&mut self, database: usize, oid: Oid, is_swept: bool) {
        let number = self.graph.number(database, oid);
        self.graph.sweep(number, is_swept);
    }

    /// Whether the newest revision of an object has data.
    pub(super) fn is_alive(&mut self, database: usize, oid: Oid) -> bool {
        let number = self.graph.number(database, oid);
        self.graph.is_alive(number)
    }

    fn is_garbage(&self, number: u32) -> bool {
        self.graph.is_alive(number) && !self.graph.is_marked(number)
    }

    fn place(&self, number: u32) -> (Oid, Tid) {
        let (_, oid, serial) = self.graph.place(number);
        (oid, serial)
    }

    /// Reads a whole log. `young` gets the objects that were written in the grace time.
    fn read_all(&mut self, database: usize, young: &mut Vec<u32>) -> Result<(), ToolError> {
        let storage = self.databases.all[database].1;
        let last = storage.last_tid();
        let current = current_records(storage, self.since.min(last))?;
        let (since, mut position) = (self.since, 0);
        let range = TidRange::until(last);
        each_revision(storage, database, range, &mut |revision| {
            let is_young = revision.tid > since;
            let counts = is_young || current.find(revision.oid) == Some(position);
            position += 1;
            if !counts {
                return Ok(());
            }
            let number = self.note(&revision);
            if is_young && revision.data.is_some() {
                young.push(number);
            }
            for to in self.targets(&revision)? {
                self.graph.refer(number, to);
            }
            Ok(())
        })?;
        self.read_up_to[database] = last;
        Ok(())
    }

    /// Adds a record that was committed after the graph was made: it counts, and so does what it
    /// refers to.
    fn add_new(&mut self, revision: &Revision<'_>) -> Result<(), ToolError> {
        let number = self.note(revision);
        if revision.data.is_some() {
            self.graph.mark(number);
        }
        for to in self.targets(revision)? {
            self.graph.mark(to);
        }
        Ok(())
    }

    fn note(&mut self, revision: &Revision<'_>) -> u32 {
        let number = self.graph.number(revision.database, revision.oid);
        self.graph.revise(number, revision.tid, revision.data.is_some());
        number
    }

    /// What a record refers to.
    fn targets(&mut self, revision: &Revision<'_>) -> Result<Vec<u32>, ToolError> {
        let Revision { database, oid, data: Some(data), .. } = *revision else {
            return Ok(Vec::new());
        };
        let (mut targets, mut unknown) = (Vec::new(), None);
        let read = references_of_record(data, &mut |reference| match reference {
            Reference::Strong(to) => targets.push(self.graph.number(database, to)),
            Reference::CrossDatabase { database, oid, weak: false } => {
                match self.databases.all.iter().position(|(name, _)| name == database) {
                    Some(database) => targets.push(self.graph.number(database, oid)),
                    None if self.databases.ignored.iter().any(|name| name == database) => {}
                    None => unknown = Some(database),
                }
            }
            Reference::Weak(_) | Reference::CrossDatabase { .. } => {}
        });
        let name = &self.databases.all[database].0;
        if let Err(error) = read {
            let what = format!(
                "{name}: what object {oid} refers to cannot be read, so no object is known to be \
                 garbage: {error}"
            );
            return Err(StorageError::Corrupt(what.into()).into());
        }
        match unknown {
            None => Ok(targets),
            Some(other) => Err(ToolError::Refused(format!(
                "{name}: object {oid} refers to database {other:?}, which is not given: give it as \
                 {other}=STORAGE, or --ignore {other}"
            ))),
        }
    }
}

/// Of each object the number of its last record up to transaction `last`.
fn current_records(storage: &dyn Read, last: Tid) -> Result<OidMap, ToolError> {
    let (mut records, mut position) = (OidMap::default(), 0);
    walk(storage, TidRange::until(last), &mut |item| {
        if let LogItem::Record { oid, .. } = item {
            records.insert(oid, position);
            position += 1;
        }
        Ok(())
    })?;
    Ok(records)
}

fn each_revision(
    storage: &dyn Read,
    database: usize,
    range: TidRange,
    visit: &mut dyn FnMut(Revision<'_>) -> Result<(), ToolError>,
) -> Result<(), ToolError> {
    let mut current = Tid::ZERO;
    walk(storage, range, &mut |item| match item {
        LogItem::Transaction { tid, .. } => {
            current = tid;
            Ok(())
        }
        LogItem::Record { oid, data, .. } => visit(Revision { database, oid, tid: current, data }),
        LogItem::Skipped => Ok(()),
    })
}
