//! The storages that a server is beside: what it asks them, and what they tell it.
//!
//! Key decision: commits are told before any client of a storage learns of them, by the thread that
//! announces them. So tied keys are gone when the first invalidation is sent.

use std::sync::Arc;

use bytes::Bytes;
use zodium_tls::PeerIdentity;
use zodium_types::{Oid, Tid};

use crate::Server;
use crate::call::Call;
use crate::client::Client;
use crate::fail::Fail;

/// Storages that are served beside a RESP server, by their places in the configuration.
pub trait Storages: Send + Sync {
    /// The place of a storage.
    fn find(&self, name: &str) -> Option<usize>;

    /// The name of a storage.
    fn name(&self, storage: usize) -> &str;

    /// Whether a client may use a storage.
    fn admits(&self, storage: usize, peer: Option<&PeerIdentity>) -> bool;

    /// The last transaction that all clients were told of, and this server before them. It does not
    /// wait for this server.
    fn last_tid(&self, storage: usize) -> Tid;

    /// Whether objects were written after `since`, or may have been. The answer has all commits
    /// that the server was told of, or is just being told of.
    fn may_have_changed(&self, storage: usize, since: Tid, oids: &[Oid]) -> bool;

    /// The last transaction that wrote an object; zero if none has, `None` if that cannot be told.
    /// It may wait for a disk or a network.
    fn changed_at(&self, storage: usize, oid: Oid) -> Option<Tid>;

    /// Visits the tokens of parked commands in transactions after `since`, in their order. It may
    /// wait for a disk or a network.
    fn tokens_after(&self, storage: usize, since: Tid, visit: &mut dyn FnMut(Tid, &[u8]));

    /// Number of storages.
    fn count(&self) -> usize;

    /// The newest revision of an object before a transaction. Only if it `may_wait` for a disk or
    /// a network, it does.
    fn load(&self, storage: usize, oid: Oid, before: Tid, may_wait: bool) -> Loaded;
}

/// A revision of an object.
#[derive(Debug)]
pub enum Loaded {
    /// The pickles of its record.
    Data(Bytes),
    /// There is no such object, or had not been then.
    Missing,
    /// It is not in memory: ask again where waiting is allowed.
    WouldBlock,
    /// It cannot be read, for this reason.
    Failed(String),
}

/// A transaction that a storage has committed.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// Its tid.
    pub tid: Tid,
    /// The objects that it wrote.
    pub oids: &'a [Oid],
    /// Its number among those that were voted.
    pub number: u64,
}

impl Server {
    /// Gives a server the storages that it is beside. They are set once, before there are clients.
    pub fn attach(&self, storages: Arc<dyn Storages>) {
        if self.storages.set(storages).is_err() {
            tracing::error!("the RESP server has its storages already");
        }
    }

    /// Takes commits of a storage, in the order of their tids: they are durable and visible to
    /// loads, and no client knows of them yet.
    pub fn committed(&self, storage: usize, commits: &[Commit]) {
        for commit in commits {
            // One after the other: a later commit removes keys that an earlier one has tied.
            let objects = commit.oids.iter().map(|oid| (storage, *oid));
            let cut = self.ties.cut(&self.keyspace, objects);
            self.tracking.invalidate_removed(&self.clients, &cut);
            self.take_effect(storage, commit.number);
        }
        self.publish_commits(storage, commits);
    }

    /// The storages beside it.
    pub(crate) fn storages(&self) -> Result<&dyn Storages, Fail> {
        self.storages.get().map(|storages| &**storages).ok_or(Fail::fixed(
            "ERR this server has no storage: its objects are known to 'zodium serve --resp' only",
        ))
    }

    /// The storage of a name, if the peer may use it. The answer does not tell a storage that the
    /// peer may not use from one that is not there.
    pub(crate) fn admitted(&self, name: &[u8], peer: Option<&PeerIdentity>) -> Result<usize, Fail> {
        let storages = self.storages()?;
        let found = std::str::from_utf8(name).ok().and_then(|name| storages.find(name));
        found.filter(|storage| storages.admits(*storage, peer)).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Fail::text(format!("NOPERM there is no storage '{name}' for this client"))
        })
    }
}

impl Client {
    /// The identity of its certificate, if it has shown one.
    pub(crate) fn identity(&self) -> Option<&PeerIdentity> {
        self.link.identity()
    }
}

impl<'a> Call<'a, '_> {
    /// The identity of the client; none for commands that take effect with a ZODB transaction.
    pub(crate) fn identity(&self) -> Option<&'a PeerIdentity> {
        self.client.and_then(Client::identity)
    }
}
