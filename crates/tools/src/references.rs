//! References between the objects of a database: those that lead nowhere, those to one object, and
//! the way to it from the root.

use zodium_pickle::{Reference, references_of_record};
use zodium_storage::{Access, Load, LogItem, Read, Revision};
use zodium_types::{Oid, Tid};

use crate::classes::class_of;
use crate::oid_map::OidMap;
use crate::oid_queue::OidQueue;
use crate::walk::walk;
use crate::{TidRange, ToolError};

/// Why a reference leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There never was such an object, or a pack has dropped it.
    Absent,
    /// It was deleted, or its creation was undone.
    Deleted,
}

impl Missing {
    /// As ZODB's fsrefs says it.
    pub fn in_words(self) -> &'static str {
        match self {
            Missing::Absent => "missing",
            Missing::Deleted => "object creation was undone",
        }
    }
}

/// A current object, in the order of the log.
pub struct Referrer<'a> {
    /// The object.
    pub oid: Oid,
    /// The transaction that wrote it.
    pub tid: Tid,
    /// Its data.
    pub data: &'a [u8],
    /// Its references, repeated ones included; of data that cannot be read those before the damage.
    pub references: &'a [Oid],
    /// Whether its data could be read.
    pub is_read: bool,
}

/// The current objects of a storage as of one transaction.
pub struct CurrentObjects<'s> {
    storage: &'s dyn Read,
    last: Tid,
    /// Of each object the number of its last record in the log, times 2; plus 1 if it is deleted.
    records: OidMap,
}

impl<'s> CurrentObjects<'s> {
    /// Reads the log up to transaction `last`.
    pub fn of(storage: &'s dyn Read, last: Tid) -> Result<CurrentObjects<'s>, ToolError> {
        let (mut records, mut number) = (OidMap::default(), 0);
        walk(storage, TidRange::until(last), &mut |item| {
            if let LogItem::Record { oid, data, .. } = item {
                records.insert(oid, number << 1 | u64::from(data.is_none()));
                number += 1;
            }
            Ok(())
        })?;
        Ok(CurrentObjects { storage, last, records })
    }

    /// Whether a reference to this object leads nowhere.
    pub fn missing(&self, oid: Oid) -> Option<Missing> {
        match self.records.find(oid) {
            None => Some(Missing::Absent),
            Some(record) if record & 1 == 1 => Some(Missing::Deleted),
            Some(_) => None,
        }
    }

    /// Shows each object that is not deleted, with its references, in the order of the log. Weak
    /// references, and those to other databases, are left out.
    pub fn each(
        &self,
        visit: &mut dyn FnMut(Referrer<'_>) -> Result<(), ToolError>,
    ) -> Result<(), ToolError> {
        let (mut number, mut current, mut references) = (0, Tid::ZERO, Vec::new());
        walk(self.storage, TidRange::until(self.last), &mut |item| {
            match item {
                LogItem::Transaction { tid, .. } => current = tid,
                LogItem::Record { oid, data, .. } => {
                    let is_current = self.records.find(oid) == Some(number << 1);
                    number += 1;
                    if let Some(data) = data.filter(|_| is_current) {
                        let is_read = collect(data, &mut references);
                        let references = &references[..];
                        return visit(Referrer { oid, tid: current, data, references, is_read });
                    }
                }
                LogItem::Skipped => {}
            }
            Ok(())
        })
    }

    /// The shortest way of references from the root to an object, with the class of each object on
    /// it; `None` if there is none. The search takes as much memory as this, so it takes its place.
    pub fn into_path(self, target: Oid) -> Result<Option<Vec<(Oid, String)>>, ToolError> {
        let CurrentObjects { storage, last, records } = self;
        drop(records);
        path_from_root(storage, last, target, &mut |_| Ok(()))
    }
}

/// The shortest way of references from the root to an object, as of transaction `last`, with the
/// class of each object on it; `None` if there is none. Reads only objects that are no farther from
/// the root. `visited` hears of the number of objects that were read, and ends the search with an
/// error.
///
/// # Errors
/// The storage's, or what `visited` gave.
pub fn path_from_root(
    storage: &dyn Read,
    last: Tid,
    target: Oid,
    visited: &mut dyn FnMut(u64) -> Result<(), ToolError>,
) -> Result<Option<Vec<(Oid, String)>>, ToolError> {
    let (mut parents, mut count) = (OidMap::default(), 0);
    parents.insert(Oid::ROOT, Oid::ROOT.0);
    let (mut waiting, mut references) = (OidQueue::default(), Vec::new());
    waiting.push(Oid::ROOT);
    let (mut asked, at_once) = (Vec::new(), storage.loads_at_once());
    while parents.find(target).is_none() {
        asked.clear();
        asked.extend(waiting.by_ref().take(at_once).map(|oid| (oid, last.next())));
        if asked.is_empty() {
            break;
        }
        for ((oid, _), loaded) in asked.iter().zip(storage.load_many_before(&asked)) {
            count += 1;
            visited(count)?;
            let Load::Revision(Revision { data, .. }) = loaded? else { continue };
            // Those before the damage count.
            collect(&data, &mut references);
            for to in references.drain(..) {
                if parents.find(to).is_none() {
                    parents.insert(to, oid.0);
                    waiting.push(to);
                }
            }
        }
    }
    let Some(mut parent) = parents.find(target) else { return Ok(None) };
    let mut path = vec![target];
    while path.last() != Some(&Oid::ROOT) {
        path.push(Oid(parent));
        parent = parents.find(Oid(parent)).unwrap_or(Oid::ROOT.0);
    }
    let named = path.into_iter().rev().map(|oid| {
        let data = load(storage, last, oid)?;
        Ok((oid, data.map_or("<unknown>".to_owned(), |data| class_of(&data))))
    });
    named.collect::<Result<_, ToolError>>().map(Some)
}

fn load(storage: &dyn Read, last: Tid, oid: Oid) -> Result<Option<bytes::Bytes>, ToolError> {
    match storage.load_before(oid, last.next(), Access::Blocking)? {
        Load::Revision(revision) => Ok(Some(revision.data)),
        Load::NoRevision | Load::Missing | Load::WouldBlock => Ok(None),
    }
}

/// Collects the strong references of a record; whether all of it could be read.
pub(crate) fn collect(data: &[u8], references: &mut Vec<Oid>) -> bool {
    references.clear();
    let read = references_of_record(data, &mut |reference| {
        if let Reference::Strong(oid) = reference {
            references.push(oid);
        }
    });
    read.is_ok()
}
