//! Read-only calls of all clients at once, and iterators.

use std::collections::{BTreeMap, HashSet};

use rand::RngExt;
use zodium_pickle::Value;
use zodium_storage::{Load, ObjectStep, Revision};
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::MessageId;

use super::Play;
use super::model::Committed;
use crate::support::client::Answer;
use crate::support::{Difference, same};

/// Most reads that one client sends at once.
const READS_MAX: usize = 12;
/// Most transactions of one iteration.
const STEPS_MAX: usize = 12;

/// A call that was sent, with the expected answer and how to compare it.
struct Asked {
    what: String,
    id: MessageId,
    view: fn(&Value<'_>) -> Value<'static>,
    expected: Answer,
}

impl Play {
    /// All clients send reads, and check the answers against the model.
    pub(super) fn read_all(&mut self) -> Result<(), Difference> {
        let mut asked = Vec::new();
        for client in 0..self.clients.len() {
            let count = self.random.random_range(0..=READS_MAX);
            let mut loads = HashSet::new();
            let mut reads = Vec::with_capacity(count);
            for _ in 0..count {
                reads.push(self.ask_something(client, &mut loads)?);
            }
            self.seen.calls += count as u64;
            self.clients[client].client.send()?;
            asked.push(reads);
        }
        for (client, reads) in asked.into_iter().enumerate() {
            let any = !reads.is_empty();
            for Asked { what, id, view, expected } in reads {
                let found = match self.clients[client].client.answer(&id)? {
                    Answer::Value(value) => Answer::Value(view(&value)),
                    other => other,
                };
                same(format!("client {client}: {what}"), found, expected)?;
            }
            if any {
                let player = &mut self.clients[client];
                let (told, untold) = (&mut player.client.invalidations, &mut player.untold);
                same(format!("what client {client} was told"), &*told, &*untold)?;
                told.clear();
                untold.clear();
            }
        }
        Ok(())
    }

    fn ask_something(
        &mut self,
        client: usize,
        loads: &mut HashSet<(Oid, Tid)>,
    ) -> Result<Asked, Difference> {
        let (oid, tid) = (self.oid(), self.tid());
        match self.random.random_range(0..20) {
            0..10 => self.ask_load(client, oid, tid, loads),
            10 | 11 => self.ask_serial(client, oid, tid),
            12 => self.ask_tid(client, oid),
            13 => self.ask_history(client, oid),
            14 => self.ask_last(client),
            15 => self.ask_changed(client, tid),
            16 => self.ask_undo_log(client),
            17 => self.ask_next(client, oid),
            _ => {
                let id = self.clients[client].client.call("ping", [])?;
                let expected = Answer::Value(Value::None);
                Ok(Asked { what: "ping".to_owned(), id, view: plain, expected })
            }
        }
    }

    fn ask_load(
        &mut self,
        client: usize,
        oid: Oid,
        before: Tid,
        loads: &mut HashSet<(Oid, Tid)>,
    ) -> Result<Asked, Difference> {
        let before = if self.random.random() { Tid::MAX } else { before };
        let expected = match self.model.load_before(oid, before) {
            Load::Missing => missing(),
            Load::NoRevision => Answer::Value(Value::None),
            Load::Revision(Revision { data, serial, end, .. }) => {
                Answer::Value(Value::tuple([data.to_vec().into(), serial.into(), end.into()]))
            }
            Load::WouldBlock => panic!("memory does not wait"),
        };
        let client = &mut self.clients[client].client;
        let id = if loads.insert((oid, before)) {
            client.load(oid, before)
        } else {
            client.call("loadBefore", [oid.into(), before.into()])?
        };
        Ok(Asked { what: format!("load of {oid} before {before}"), id, view: plain, expected })
    }

    fn ask_serial(&mut self, client: usize, oid: Oid, tid: Tid) -> Result<Asked, Difference> {
        let expected = self.model.load_serial(oid, tid);
        let expected = expected.map_or_else(missing, |data| Answer::Value(data.into()));
        let id = self.clients[client].client.call("loadSerial", [oid.into(), tid.into()])?;
        Ok(Asked { what: format!("loadSerial of {oid} at {tid}"), id, view: plain, expected })
    }

    fn ask_tid(&mut self, client: usize, oid: Oid) -> Result<Asked, Difference> {
        let living = self.model.serial_of_living(oid);
        let expected = living.map_or_else(missing, |serial| Answer::Value(serial.into()));
        let id = self.clients[client].client.call("getTid", [oid.into()])?;
        Ok(Asked { what: format!("getTid of {oid}"), id, view: plain, expected })
    }

    fn ask_history(&mut self, client: usize, oid: Oid) -> Result<Asked, Difference> {
        let count = self.random.random_range(1..8_u64);
        let tids = self.model.history(oid, count as usize);
        let expected = match tids.is_empty() {
            true => missing(),
            false => Answer::Value(Value::tuple(tids.into_iter().map(Value::from))),
        };
        let id = self.clients[client].client.call("history", [oid.into(), count.into()])?;
        let view = |value: &Value<'_>| entries(value, "tid");
        Ok(Asked { what: format!("{count} of the history of {oid}"), id, view, expected })
    }

    fn ask_last(&mut self, client: usize) -> Result<Asked, Difference> {
        let id = self.clients[client].client.call("lastTransaction", [])?;
        let expected = Answer::Value(self.model.last_tid.into());
        Ok(Asked { what: "lastTransaction".to_owned(), id, view: plain, expected })
    }

    fn ask_changed(&mut self, client: usize, since: Tid) -> Result<Asked, Difference> {
        let id = self.clients[client].client.call("getInvalidations", [since.into()])?;
        let last = Value::from(self.model.last_tid);
        let expected = self
            .model
            .changed_since(since)
            .map(|oids| Value::tuple([last, Value::tuple(oids.into_iter().map(Value::from))]));
        let expected = Answer::Value(expected.unwrap_or(Value::None));
        Ok(Asked { what: format!("changes since {since}"), id, view: sorted_changes, expected })
    }

    fn ask_undo_log(&mut self, client: usize) -> Result<Asked, Difference> {
        let id = self.clients[client].client.call("undoLog", [0.into(), 7.into()])?;
        let undoable = self.model.undoable(7).into_iter();
        let descriptions = undoable.map(|one| Value::from(one.metadata.description));
        let expected = Answer::Value(Value::tuple(descriptions));
        let view = |value: &Value<'_>| entries(value, "description");
        Ok(Asked { what: "undoLog".to_owned(), id, view, expected })
    }

    fn ask_next(&mut self, client: usize, from: Oid) -> Result<Asked, Difference> {
        let id = self.clients[client].client.call("record_iternext", [from.into()])?;
        let expected = match self.model.next_object(from) {
            None => Answer::Error("builtins.ValueError".to_owned()),
            Some(ObjectStep { data: None, .. }) => missing(),
            Some(ObjectStep { oid, serial, data: Some(data), following }) => {
                let data = Value::from(data.to_vec());
                let parts = [oid.into(), serial.into(), data, following.into()];
                Answer::Value(Value::tuple(parts))
            }
        };
        Ok(Asked { what: format!("the object from {from} on"), id, view: plain, expected })
    }

    /// Checks transactions and their records from some tid on.
    pub(super) fn iterate(&mut self, client: usize) -> Result<(), Difference> {
        let start = self.tid();
        let expected = self.model.transactions_from(start, STEPS_MAX);
        let number = self.value(client, "iterator_start", [start.into(), Value::None])?;
        for Committed { tid, description, records } in expected {
            let found = self.value(client, "iterator_next", [number.clone()])?;
            let found = found.as_sequence().unwrap_or_default();
            let found = (found.first().and_then(Value::as_tid), found.get(3).cloned());
            same("the next transaction", found, (Some(tid), Some(description.into())))?;
            let of = self.value(client, "iterator_record_start", [number.clone(), tid.into()])?;
            let mut seen = BTreeMap::new();
            loop {
                let found = self.value(client, "iterator_record_next", [of.clone()])?;
                let Some(parts) = found.as_sequence() else { break };
                let data = match parts.get(2) {
                    Some(Value::Bytes(data)) => Some(data.to_vec()),
                    _ => None,
                };
                seen.extend(parts.first().and_then(Value::as_oid).map(|oid| (oid, data)));
            }
            same(format!("the records of {tid}"), seen, records)?;
        }
        let numbers = Value::list([number]);
        self.value(client, "iterator_gc", [numbers]).map(drop)
    }

    fn value<const N: usize>(
        &mut self,
        client: usize,
        name: &str,
        arguments: [Value<'_>; N],
    ) -> Result<Value<'static>, Difference> {
        self.seen.calls += 1;
        match self.clients[client].client.ask(name, arguments)? {
            Answer::Value(value) => Ok(value),
            other => Err(Difference { what: format!("{name}: {other:?}") }),
        }
    }
}

fn missing() -> Answer {
    Answer::Error("ZODB.POSException.POSKeyError".to_owned())
}

/// Picks one entry of each dict in a list.
fn entries(value: &Value<'_>, name: &str) -> Value<'static> {
    let entry = |value: &Value<'_>| value.entry(name).map_or(Value::None, plain);
    Value::tuple(value.as_sequence().unwrap_or_default().iter().map(entry))
}

/// A tid and oids, with the oids sorted.
fn sorted_changes(value: &Value<'_>) -> Value<'static> {
    let Some([tid, oids]) = value.as_sequence() else { return plain(value) };
    let mut oids: Vec<Oid> =
        oids.as_sequence().unwrap_or_default().iter().filter_map(Value::as_oid).collect();
    oids.sort_unstable();
    Value::tuple([plain(tid), Value::tuple(oids.into_iter().map(Value::from))])
}

/// The value as both encodings express it: msgpack has no lists beside tuples.
fn plain(value: &Value<'_>) -> Value<'static> {
    match value {
        Value::List(items) | Value::Tuple(items) => Value::Tuple(items.iter().map(plain).collect()),
        Value::Dict(entries) => {
            Value::Dict(entries.iter().map(|(key, value)| (plain(key), plain(value))).collect())
        }
        other => other.clone().into_owned(),
    }
}
