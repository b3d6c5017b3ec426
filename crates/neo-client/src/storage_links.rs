//! The connections to storages: one for each, made when it is first needed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zodium_neo::NodeId;

use crate::NeoError;
use crate::connection::Connection;

/// After a failed attempt the next one to the same storage is made after so long.
const RETRY: Duration = Duration::from_millis(500);

/// The connections to storages.
#[derive(Default)]
pub(crate) struct StorageLinks {
    links: Mutex<FxHashMap<NodeId, Arc<Link>>>,
}

/// The connection to one storage.
#[derive(Default)]
struct Link {
    /// Held by the thread that connects. Taken before `current`, never after it.
    connecting: Mutex<Option<Failure>>,
    current: Mutex<Option<Arc<Connection>>>,
}

/// The last attempt.
struct Failure {
    at: Instant,
    error: NeoError,
}

impl StorageLinks {
    /// The connection to a storage, which `open` makes if there is none.
    pub(crate) fn connection(
        &self,
        node: NodeId,
        open: impl FnOnce() -> Result<Arc<Connection>, NeoError>,
    ) -> Result<Arc<Connection>, NeoError> {
        let link = Arc::clone(self.links.lock().entry(node).or_default());
        if let Some(connection) = link.current() {
            return Ok(connection);
        }
        let mut failure = link.connecting.lock();
        // Another thread may have connected meanwhile.
        if let Some(connection) = link.current() {
            return Ok(connection);
        }
        if let Some(failure) = failure.as_ref().filter(|failure| failure.at.elapsed() < RETRY) {
            return Err(failure.error.clone());
        }
        match open() {
            Ok(connection) => {
                *failure = None;
                *link.current.lock() = Some(Arc::clone(&connection));
                Ok(connection)
            }
            Err(error) => {
                *failure = Some(Failure { at: Instant::now(), error: error.clone() });
                Err(error)
            }
        }
    }

    /// The connection to a storage, if there is one.
    pub(crate) fn existing(&self, node: NodeId) -> Option<Arc<Connection>> {
        let link = self.links.lock().get(&node).cloned();
        link.and_then(|link| link.current())
    }

    /// The connections there are.
    pub(crate) fn all(&self) -> Vec<Arc<Connection>> {
        let links: Vec<_> = self.links.lock().values().map(Arc::clone).collect();
        links.iter().filter_map(|link| link.current()).collect()
    }

    /// Ends the connection to a storage.
    pub(crate) fn close(&self, node: NodeId, reason: &str) {
        let link = self.links.lock().get(&node).cloned();
        if let Some(link) = link {
            link.close(reason);
        }
    }

    /// Lets the next request connect at once: the master says that a storage runs, perhaps again.
    pub(crate) fn forget_failure(&self, node: NodeId) {
        let link = self.links.lock().get(&node).cloned();
        // The receiver of the master's messages must not wait for a thread that connects.
        if let Some(mut failure) = link.as_ref().and_then(|link| link.connecting.try_lock()) {
            *failure = None;
        }
    }

    /// Ends all connections.
    pub(crate) fn close_all(&self, reason: &str) {
        let links = std::mem::take(&mut *self.links.lock());
        links.into_values().for_each(|link| link.close(reason));
    }
}

impl Link {
    fn current(&self) -> Option<Arc<Connection>> {
        self.current.lock().clone().filter(|connection| !connection.has_ended())
    }

    fn close(&self, reason: &str) {
        let connection = self.current.lock().take();
        if let Some(connection) = connection {
            connection.end(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use zodium_neo::NodeType;

    use super::*;

    #[test]
    fn a_storage_that_failed_is_asked_again_when_the_master_says_that_it_runs() {
        let (links, node) = (StorageLinks::default(), NodeId::of(NodeType::Storage, 1).unwrap());
        let attempt = |links: &StorageLinks| {
            let mut is_made = false;
            let made = links.connection(node, || {
                is_made = true;
                Err(NeoError::MasterLost)
            });
            assert!(made.is_err());
            is_made
        };
        assert!(attempt(&links));
        assert!(!attempt(&links), "within the pause");
        links.forget_failure(node);
        assert!(attempt(&links));
    }
}
