//! What the tests share: a storage over the model, and what it tells.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use zodium_neo_client::{NeoError, NeoStorage, Options};
use zodium_storage::{
    Access, Committed, Follower, Load, NewBody, Read, Shared, SharedConflict, SharedWrite, Storage,
    StorageError,
};
use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::model::{Model, NAME};

/// Nothing takes as long unless it never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn options(masters: &[SocketAddr], seconds: u64) -> Options {
    let masters = masters.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    Options::from_url(&format!("neo://{NAME}@{masters}?wait={seconds}")).unwrap()
}

pub(crate) fn open(model: &Model) -> NeoStorage {
    try_open(model).unwrap()
}

/// Without a cache: each load meets the storages.
pub(crate) fn try_open(model: &Model) -> Result<NeoStorage, NeoError> {
    NeoStorage::open(Options { cache_bytes: 0, ..options(&[model.master], 10) })
}

/// With a cache.
pub(crate) fn open_with_cache(model: &Model) -> NeoStorage {
    NeoStorage::open(options(&[model.master], 10)).unwrap()
}

/// The data of an object as text, its serial, and that of the next revision.
pub(crate) fn text(
    storage: &NeoStorage,
    oid: u64,
    before: Tid,
) -> Result<Option<(String, Tid, Option<Tid>)>, StorageError> {
    Ok(match storage.load_before(Oid(oid), before, Access::Blocking)? {
        Load::Revision(found) => {
            let text = String::from_utf8(found.data.to_vec()).unwrap();
            Some((text, found.serial, found.end))
        }
        Load::NoRevision | Load::Missing => None,
        Load::WouldBlock => panic!("access is blocking"),
    })
}

pub(crate) fn current(storage: &NeoStorage, oid: u64) -> Option<String> {
    text(storage, oid, Tid::MAX).unwrap().map(|(text, ..)| text)
}

pub(crate) fn write(oid: u64, serial: Tid, data: &'static str) -> SharedWrite {
    let body = NewBody::Data(Bytes::from_static(data.as_bytes()));
    SharedWrite { oid: Oid(oid), serial, body }
}

pub(crate) fn shared(storage: &NeoStorage) -> &dyn Shared {
    storage.shared().unwrap()
}

/// Stores objects and votes; the conflicts instead, if there are any.
pub(crate) fn vote(
    storage: &NeoStorage,
    writes: &[SharedWrite],
) -> Result<zodium_storage::Prepared, Vec<SharedConflict>> {
    let mut open = shared(storage).begin(&TransactionMetadata::default()).unwrap();
    let conflicts = open.store(writes, &[]).unwrap();
    if conflicts.is_empty() { Ok(open.vote().unwrap()) } else { Err(conflicts) }
}

/// Commits objects, and waits for the outcome.
pub(crate) fn commit(
    storage: &NeoStorage,
    writes: &[SharedWrite],
) -> Result<Committed, StorageError> {
    let prepared = vote(storage, writes).unwrap();
    let (done, outcome) = channel();
    shared(storage).finish(prepared, Box::new(move |told| done.send(told).unwrap()));
    outcome.recv_timeout(PATIENCE).unwrap()
}

/// What a follower is told.
pub(crate) struct Told(Sender<Committed>);

impl Follower for Told {
    fn committed(&self, commits: Vec<Committed>) {
        commits.into_iter().for_each(|one| self.0.send(one).unwrap());
    }
}

pub(crate) fn follow(storage: &NeoStorage) -> Receiver<Committed> {
    let (told, commits) = channel();
    let following = storage.following().unwrap();
    following.follow(storage.last_tid(), Arc::new(Told(told))).unwrap();
    commits
}
