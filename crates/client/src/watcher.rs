//! Who is told what others commit.

use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

/// Told what happens to a storage, one call at a time and in the order of commits, by whichever
/// thread reads from the server. No method may wait for an answer of the same client.
pub trait Watcher: Send + Sync {
    /// Somebody else's transaction gave these objects new revisions. It is called before
    /// `Client::last_tid` says so, and after loads see it.
    fn invalidated(&self, tid: Tid, oids: &[Oid]) {
        let _ = (tid, oids);
    }

    /// So much has happened while there was no connection that the server does not know any more
    /// what changed: everything that was kept may be old.
    fn all_invalidated(&self) {}

    /// There is a connection; `info` is what the server answered to `get_info`, a dict. All that
    /// was missed meanwhile has been told.
    fn connected(&self, info: &Value<'_>) {
        let _ = info;
    }

    /// The connection is lost; another is being looked for.
    fn disconnected(&self) {}

    /// The server tells its figures anew: a dict with `length` (objects) and `size` (bytes).
    fn info(&self, info: &Value<'_>) {
        let _ = info;
    }
}
