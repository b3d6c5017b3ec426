//! Callbacks for commits of other clients and for connection changes.

use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::ClientError;

/// Receives the events of a storage, one call at a time and in the order of commits. The thread
/// that reads from the server makes the calls, so a method that would wait for a reply to the same
/// client, or for a connection, gets [`ClientError::Nested`].
///
/// An error means that the watcher has not taken in what it was told, so that the application may
/// hold old objects. The client then ends the connection, and tells it again with the next one.
pub trait Watcher: Send + Sync {
    /// Another client's transaction wrote these objects. Called after loads see the change, and
    /// before `Client::last_tid` includes it.
    fn invalidated(&self, tid: Tid, oids: &[Oid]) -> Result<(), ClientError> {
        let _ = (tid, oids);
        Ok(())
    }

    /// The client was disconnected for so long that the server no longer knows what has changed.
    /// Everything that was kept may be stale.
    fn all_invalidated(&self) -> Result<(), ClientError> {
        Ok(())
    }

    /// A connection is established, and everything missed before has been reported. `info` is the
    /// server's answer to `get_info`, a dict.
    fn connected(&self, info: &Value<'_>) -> Result<(), ClientError> {
        let _ = info;
        Ok(())
    }

    /// The connection is lost; the client tries to connect again. Not called by a close.
    fn disconnected(&self) {}

    /// The server sent new statistics: a dict with `length` (objects) and `size` (bytes).
    fn info(&self, info: &Value<'_>) {
        let _ = info;
    }
}
