//! What the log cannot tell alone: which parked commands have taken effect, and which tied keys
//! are still current. The storages tell.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use zodium_keyspace::{Hold, Removed, Tie, Word};
use zodium_resp::OwnedRequest;
use zodium_types::Tid;

use super::KeyLog;
use super::origins::{objects_of, since};
use crate::Server;
use crate::beside::Beside;
use crate::call::ItsCommit;
use crate::commands::Command;
use crate::parked::{self, Parcel};
use crate::storages::Storages;
use crate::ties::{self, Object, free_cut};

/// What is left to be decided when the log was read.
#[derive(Default)]
pub(crate) struct Recovery {
    /// Commands that wait for their transactions, by token.
    parked: FxHashMap<Word, Parcel>,
}

impl Recovery {
    pub(super) fn park(
        &mut self,
        token: &[u8],
        database: usize,
        since: &[(&[u8], Tid)],
        requests: Vec<(&'static Command, OwnedRequest)>,
    ) {
        let name = |name| String::from_utf8_lossy(name).into_owned();
        let since = since.iter().map(|(storage, tid)| (name(storage), *tid)).collect();
        let parcel = Parcel { client: 0, database, requests, _held: None, since };
        self.parked.insert(token.into(), parcel);
    }

    pub(super) fn unpark(&mut self, token: &[u8]) {
        self.parked.remove(token);
    }

    /// Ties a key as it was tied. Without its storages the key goes: it may be outdated.
    pub(super) fn tie_again(beside: &Beside, hold: &mut Hold, key: &[u8], origin: &[u8]) {
        if hold.entry(key).is_none() {
            return;
        }
        let found = beside.storages().ok().and_then(|storages| objects_of(storages, origin));
        let Some((_, objects)) = found else {
            hold.take(key);
            return;
        };
        let tie = Tie::new(origin);
        let place = Removed { database: hold.database, key: key.into() };
        beside.ties.enter(&objects, &tie, place);
        ties::add(hold, key, vec![tie]);
    }

    /// Decides what the log has left open. As while the server ran, a commit first cuts ties, and
    /// then its commands take effect, which may tie keys.
    pub(super) fn complete(self, server: &Server) {
        let Ok(storages) = server.beside.storages() else {
            return drop_parked(&server.log, self.parked.into_keys());
        };
        let mut parked = self.parked;
        let mut known = Known { storages, changed_at: FxHashMap::default() };
        for (commit, token) in committed(storages, &parked) {
            let Some(parcel) = parked.remove(&token) else { continue };
            known.cut_outdated(server, commit.tid);
            let tid = commit.tid;
            tracing::info!(
                "commands of transaction {tid} take effect now: a crash came between its commit \
                 and theirs"
            );
            parked::execute(server, None, (&token, &parcel), commit);
        }
        known.cut_outdated(server, Tid::MAX);
        drop_parked(&server.log, parked.into_keys());
    }
}

/// What storages have been asked. Later commits cut ties themselves.
struct Known<'a> {
    storages: &'a dyn Storages,
    changed_at: FxHashMap<Object, Option<Tid>>,
}

impl Known<'_> {
    /// Cuts ties to objects that a transaction up to this one has changed, and those to objects of
    /// a storage which lacks what the values may show: an older copy, or an empty one. A copy that
    /// has gone on since is not noticed.
    fn cut_outdated(&mut self, server: &Server, until: Tid) {
        let mut cut = Vec::new();
        for (object, tie, place) in server.beside.ties.all() {
            let Some(since) = since(tie.origin()) else { continue };
            // A pack may have removed the transaction itself.
            let is_lost = since > self.storages.last_tid(object.0);
            if is_lost || self.is_changed(object, since, until) {
                server.beside.ties.note_cut(place);
                cut.push(tie);
            }
        }
        if !cut.is_empty() {
            server.keyspace.cut(&cut);
            while free_cut(server, usize::MAX) {}
        }
    }

    /// Whether an object was changed after a transaction by one up to another, or may have been.
    fn is_changed(&mut self, object: Object, since: Tid, until: Tid) -> bool {
        let changed_at = self.changed_at.entry(object);
        let at = changed_at.or_insert_with(|| self.storages.changed_at(object.0, object.1));
        at.is_none_or(|at| since < at && at <= until)
    }
}

/// The parked commands whose transactions were committed, in the order of these. Those of several
/// storages take effect with the last part, as it was when the server ran.
fn committed(storages: &dyn Storages, parked: &FxHashMap<Word, Parcel>) -> Vec<(ItsCommit, Word)> {
    let mut oldest: BTreeMap<usize, Tid> = BTreeMap::new();
    for (name, tid) in parked.values().flat_map(|parcel| &parcel.since) {
        if let Some(storage) = storages.find(name) {
            let since = oldest.entry(storage).or_insert(*tid);
            *since = (*since).min(*tid);
        }
    }
    let mut last: FxHashMap<Word, (Tid, usize)> = FxHashMap::default();
    for (storage, since) in oldest {
        storages.tokens_after(storage, since, &mut |tid, token| {
            if parked.contains_key(token) {
                let part = last.entry(token.into()).or_default();
                *part = (*part).max((tid, storage));
            }
        });
    }
    let commit = |tid, storage| ItsCommit { storage, tid, number: None };
    let mut committed: Vec<_> =
        last.into_iter().map(|(token, (tid, storage))| (commit(tid, storage), token)).collect();
    committed.sort_unstable_by_key(|(commit, _)| (commit.tid, commit.storage));
    committed
}

fn drop_parked(log: &KeyLog, tokens: impl Iterator<Item = Word>) {
    for token in tokens {
        log.append_item(|out| super::items::write_unparked(out, &token));
    }
}
