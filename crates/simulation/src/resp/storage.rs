//! A storage of ZODB that the server is beside: transactions, and the objects that they wrote.

use bytes::Bytes;
use parking_lot::Mutex;
use zodium_resp_server::{Commit, Loaded, Server, Storages};
use zodium_types::{Oid, Tid};

/// Its name.
pub(super) const NAME: &str = "main";

/// The storage. It has no records.
#[derive(Default)]
pub(super) struct Storage {
    commits: Mutex<Vec<(Tid, Vec<Oid>)>>,
}

impl Storage {
    /// Commits a transaction, and tells the server of it.
    pub(super) fn commit(&self, server: &Server, tid: u64, oids: &[u64]) {
        let (tid, oids) = (Tid(tid), oids.iter().copied().map(Oid).collect::<Vec<_>>());
        self.commits.lock().push((tid, oids.clone()));
        server.committed(0, &[Commit { tid, oids: &oids, number: tid.0 }]);
    }
}

impl Storages for Storage {
    fn find(&self, name: &str) -> Option<usize> {
        (name == NAME).then_some(0)
    }

    fn name(&self, _: usize) -> &str {
        NAME
    }

    fn admits(&self, _: usize, _: Option<&zodium_tls::PeerIdentity>) -> bool {
        true
    }

    fn last_tid(&self, _: usize) -> Tid {
        self.commits.lock().last().map_or(Tid(0), |(tid, _)| *tid)
    }

    fn may_have_changed(&self, _: usize, since: Tid, oids: &[Oid]) -> bool {
        let commits = self.commits.lock();
        let mut later = commits.iter().filter(|(tid, _)| *tid > since);
        later.any(|(_, written)| written.iter().any(|oid| oids.contains(oid)))
    }

    fn changed_at(&self, _: usize, oid: Oid) -> Option<Tid> {
        let commits = self.commits.lock();
        let wrote = commits.iter().rev().find(|(_, written)| written.contains(&oid));
        wrote.map(|(tid, _)| *tid)
    }

    fn tokens_after(&self, _: usize, _: Tid, _: &mut dyn FnMut(Tid, &[u8])) {}

    fn count(&self) -> usize {
        1
    }

    fn load(&self, _: usize, _: Oid, _: Tid, _: bool) -> Loaded {
        Loaded::Data(Bytes::new())
    }
}
