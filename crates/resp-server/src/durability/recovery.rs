//! What the log cannot tell alone: which parked commands have taken effect, and which tied keys
//! are still current. The storages tell.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use zodium_keyspace::{Hold, Removed, Tie, Word};
use zodium_resp::OwnedRequest;
use zodium_types::{Oid, Tid};

use super::KeyLog;
use super::items::{Bytes, write_bytes};
use crate::beside::Beside;
use crate::parked::{self, Parcel};
use crate::storages::Storages;
use crate::ties::{Object, free_cut};
use crate::{Server, commands};

/// What is left to be decided when the log was read.
#[derive(Default)]
pub(crate) struct Recovery {
    /// Commands that wait for their transactions, by token.
    parked: FxHashMap<Word, Waiting>,
    /// Ties with their objects, and the transaction up to which these had not changed.
    ties: Vec<(Tie, Vec<Object>, Tid, Removed)>,
}

struct Waiting {
    database: usize,
    /// The last transactions of the storages when they were parked.
    since: Vec<(String, Tid)>,
    commands: Vec<OwnedRequest>,
}

impl Recovery {
    pub(super) fn park(
        &mut self,
        token: &[u8],
        database: usize,
        since: &[(&[u8], u64)],
        commands: &[OwnedRequest],
    ) {
        let since =
            since.iter().map(|(name, tid)| (String::from_utf8_lossy(name).into_owned(), Tid(*tid)));
        let waiting = Waiting { database, since: since.collect(), commands: commands.to_vec() };
        self.parked.insert(token.into(), waiting);
    }

    pub(super) fn unpark(&mut self, token: &[u8]) {
        self.parked.remove(token);
    }

    /// Ties a key as it was tied. Without its storages the key goes: it may be outdated.
    pub(super) fn tie_again(
        &mut self,
        beside: &Beside,
        hold: &mut Hold,
        key: &[u8],
        origin: &[u8],
    ) {
        if hold.entry(key).is_none() {
            return;
        }
        let found = beside.storages().ok().and_then(|storages| objects_of(storages, origin));
        let Some((since, objects)) = found else {
            hold.take(key);
            return;
        };
        let place = Removed { database: hold.database, key: key.into() };
        let tie = Tie::new(origin);
        beside.ties.enter_tie(&objects, &tie, place.clone());
        hold.tie(key, vec![tie.clone()]);
        self.ties.push((tie, objects, since, place));
    }

    /// Decides what the log has left open.
    pub(super) fn complete(self, server: &Server) {
        let Recovery { parked, ties } = self;
        if let Ok(storages) = server.beside.storages() {
            cut_outdated(server, storages, ties);
            complete_parked(server, storages, parked);
        } else {
            drop_parked(&server.log, parked.into_keys());
        }
    }
}

/// What a tie is to: objects that had not changed after a transaction. For [`Tie::origin`].
pub(crate) fn origin(storages: &dyn Storages, objects: &[Object], since: Tid) -> Vec<u8> {
    let mut out = since.0.to_be_bytes().to_vec();
    for (storage, Oid(oid)) in objects {
        write_bytes(&mut out, storages.name(*storage).as_bytes());
        out.extend_from_slice(&oid.to_be_bytes());
    }
    out
}

/// The objects and the transaction of an origin; `None` if one of the storages is not served.
fn objects_of(storages: &dyn Storages, origin: &[u8]) -> Option<(Tid, Vec<Object>)> {
    let mut bytes = Bytes(origin);
    let since = Tid(bytes.long()?);
    let mut objects = Vec::new();
    while !bytes.0.is_empty() {
        let name = std::str::from_utf8(bytes.bytes()?).ok()?;
        objects.push((storages.find(name)?, Oid(bytes.long()?)));
    }
    Some((since, objects))
}

/// Cuts ties to objects that have changed meanwhile, or that are of a storage which lacks what the
/// values may show: an older copy, or an empty one.
fn cut_outdated(
    server: &Server,
    storages: &dyn Storages,
    ties: Vec<(Tie, Vec<Object>, Tid, Removed)>,
) {
    let is_outdated = |objects: &[Object], since: Tid| {
        objects.iter().any(|&(storage, oid)| {
            storages.last_tid(storage) < since
                || storages.changed_at(storage, oid).is_none_or(|at| at > since)
        })
    };
    let mut cut = Vec::new();
    for (tie, objects, since, place) in ties {
        if is_outdated(&objects, since) {
            server.beside.ties.note_cut(place);
            cut.push(tie);
        }
    }
    if !cut.is_empty() {
        server.keyspace.cut(&cut);
        while free_cut(server, usize::MAX) {}
    }
}

/// Executes parked commands whose transactions were committed, in the order of these.
fn complete_parked(server: &Server, storages: &dyn Storages, mut parked: FxHashMap<Word, Waiting>) {
    let mut oldest: BTreeMap<usize, Tid> = BTreeMap::new();
    for (name, tid) in parked.values().flat_map(|waiting| &waiting.since) {
        if let Some(storage) = storages.find(name) {
            let since = oldest.entry(storage).or_insert(*tid);
            *since = (*since).min(*tid);
        }
    }
    let mut committed = Vec::new();
    for (storage, since) in oldest {
        storages.tokens_after(storage, since, &mut |tid, token| {
            if parked.contains_key(token) {
                committed.push((tid, Word::from(token)));
            }
        });
    }
    committed.sort();
    for (tid, token) in committed {
        let Some(waiting) = parked.remove(&token) else { continue };
        tracing::info!(
            "commands of transaction {tid} take effect now: a crash came between its commit \
             and theirs"
        );
        parked::execute(server, &token, &waiting.into_parcel(), None);
    }
    drop_parked(&server.log, parked.into_keys());
}

fn drop_parked(log: &KeyLog, tokens: impl Iterator<Item = Word>) {
    for token in tokens {
        log.append_item(|out| super::items::write_unparked(out, &token));
    }
}

impl Waiting {
    fn into_parcel(self) -> Parcel {
        let found = self
            .commands
            .into_iter()
            .filter_map(|request| Some((commands::find(request.arguments()).ok()?, request)));
        Parcel {
            client: 0,
            database: self.database,
            requests: found.collect(),
            _held: None,
            since: self.since,
        }
    }
}
