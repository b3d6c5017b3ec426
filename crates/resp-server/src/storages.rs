//! The storages that a server is beside: what it asks them, and what they tell it.
//!
//! Key decision: commits are told before any client of a storage learns of them, by the thread that
//! announces them. So tied keys are gone when the first invalidation is sent.

use bytes::Bytes;
use zodium_tls::PeerIdentity;
use zodium_types::{Oid, Tid};

use crate::call::Call;
use crate::client::Client;

/// The beginning of the channels of storages, and of the keys of objects.
pub(crate) const PREFIX: &[u8] = b"zodb:";

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

    /// Whether objects were written after `since`, or may have been; always, if the storage has no
    /// transaction as late as that. The answer has all commits that the server was told of, or is
    /// just being told of. It may read the disk, if `since` is long ago.
    fn may_have_changed(&self, storage: usize, since: Tid, oids: &[Oid]) -> bool;

    /// The last transaction that wrote an object; `None` if that cannot be told, as of one that is
    /// not there any more. It may wait for a disk or a network.
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

impl Client {
    /// The identity of its certificate, if it has shown one.
    pub(crate) fn identity(&self) -> Option<&PeerIdentity> {
        self.link.identity()
    }

    /// Whose rights count in its commands.
    pub(crate) fn rights(&self) -> Rights<'_> {
        Rights::Of(self.identity())
    }
}

/// Whose rights count when a command names a storage.
#[derive(Clone, Copy)]
pub(crate) enum Rights<'a> {
    /// A peer's, with the identity of its certificate.
    Of(Option<&'a PeerIdentity>),
    /// All: the client's were looked at before, and it may have gone.
    All,
}

impl<'a> Call<'a, '_> {
    /// Whose rights count. Commands that take effect with a ZODB transaction, and those of the log,
    /// have been admitted already.
    pub(crate) fn rights(&self) -> Rights<'a> {
        self.client.map_or(Rights::All, Client::rights)
    }
}
