//! The model of one client's transaction.

use std::collections::BTreeMap;

use zodium_types::{Oid, Tid};

use super::locks::Wanted;
use super::model::{Data, StorageModel, Undone};

/// The state of a client's transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Idle,
    Open,
    /// The vote waits for locks.
    Waiting,
    /// The vote found conflicts that the client may resolve; it holds its locks.
    Conflicted,
    Voted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Store,
    Delete,
    /// A copy without a conflict check.
    Restore,
}

#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) kind: Kind,
    pub(super) serial: Tid,
    pub(super) data: Data,
}

/// What a client has sent in its transaction.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer {
    pub(super) phase: Phase,
    pub(super) number: u64,
    pub(super) description: Vec<u8>,
    /// In the order sent, each object once.
    pub(super) writes: Vec<(Oid, Write)>,
    pub(super) checks: Vec<(Oid, Tid)>,
    pub(super) undoes: Option<Tid>,
    /// What a finish writes, as of the vote. A later computation could differ: a pack after the
    /// vote may remove the deletion that a write replaces.
    pub(super) voted: BTreeMap<Oid, Data>,
}

/// A conflict that the client is asked to resolve.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conflict {
    pub(super) oid: Oid,
    pub(super) current: Tid,
    pub(super) sent: Tid,
    pub(super) data: Vec<u8>,
}

/// The result of a vote that has its locks.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Voted(BTreeMap<Oid, Data>),
    Conflicts(Vec<Conflict>),
    Error(&'static str),
}

impl Writer {
    pub(super) fn wanted(&self, model: &StorageModel) -> Wanted {
        let undone = self.undoes.map(|tid| model.objects_of(tid)).unwrap_or_default();
        Wanted {
            exclusive: self.writes.iter().map(|(oid, _)| *oid).chain(undone).collect(),
            shared: self.checks.iter().map(|(oid, _)| *oid).collect(),
        }
    }

    pub(super) fn outcome(&self, model: &StorageModel) -> Outcome {
        if let Some(tid) = self.undoes {
            return match model.undo(tid) {
                None => Outcome::Error("ZODB.POSException.UndoError"),
                Some(Undone::Records(records)) => Outcome::Voted(records),
                Some(_) => Outcome::Error("ZODB.POSException.MultipleUndoErrors"),
            };
        }
        let mut conflicts = Vec::new();
        for (oid, write) in &self.writes {
            let current = model.current_serial(*oid);
            match (write.kind, current) {
                (Kind::Restore, _) | (Kind::Store, None) => {}
                (_, Some(current)) if current == write.serial => {}
                (Kind::Store, Some(current)) => {
                    let data = write.data.clone().unwrap_or_default();
                    let (oid, sent) = (*oid, write.serial);
                    conflicts.push(Conflict { oid, current, sent, data });
                }
                // Conflicts of earlier writes are resolved first.
                (Kind::Delete, _) if !conflicts.is_empty() => break,
                (Kind::Delete, None) => return Outcome::Error("ZODB.POSException.POSKeyError"),
                (Kind::Delete, Some(_)) => {
                    return Outcome::Error("ZODB.POSException.ConflictError");
                }
            }
        }
        if !conflicts.is_empty() {
            return Outcome::Conflicts(conflicts);
        }
        for (oid, serial) in &self.checks {
            match model.current_serial(*oid) {
                None => return Outcome::Error("ZODB.POSException.POSKeyError"),
                Some(current) if current != *serial => {
                    return Outcome::Error("ZODB.POSException.ReadConflictError");
                }
                Some(_) => {}
            }
        }
        let records = self.writes.iter().map(|(oid, write)| (*oid, write.data.clone()));
        Outcome::Voted(records.collect())
    }
}
