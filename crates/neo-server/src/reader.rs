//! Reads of the database, a few side by side.

use std::sync::Arc;

use tokio::sync::Semaphore;
use zodium_neo_storage::{ConnectionId, ReadJob, Store};

use crate::writer::Done;
use zodium_net::Link;

/// Reads side by side. Each holds what it has found until it is sent.
const READS_MAX: usize = 8;
/// Reads for other storages side by side: a replication leaves the other places to clients.
const BACKGROUND_READS_MAX: usize = 1;
/// A read waits while more bytes than this wait to be sent to the peer that it is for.
pub(crate) const UNSENT_BYTES_MAX: usize = 1 << 20;

/// A read of a row or two, and the connection that its result goes to.
pub(crate) type ShortRead = (ReadJob, Option<ConnectionId>);

/// Places for reads.
pub(crate) struct Reader {
    store: Arc<dyn Store>,
    places: Semaphore,
    /// Places for what is sent to other storages.
    background: Semaphore,
}

impl Reader {
    pub(crate) fn new(store: Arc<dyn Store>) -> Reader {
        let background = Semaphore::new(BACKGROUND_READS_MAX);
        Reader { store, places: Semaphore::new(READS_MAX), background }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Runs a read; `link` is the connection that it is for. `None` if the thread panicked, which
    /// ends the process.
    pub(crate) async fn run(&self, job: ReadJob, link: Option<Link>) -> Option<Done> {
        if let Some(link) = link {
            if job.is_background() {
                // The storage may be sending as much, of other partitions.
                link.set_paced();
            }
            // Of a connection that has ended, the result is ignored.
            link.drained(UNSENT_BYTES_MAX).await;
        }
        // The semaphore is never closed; without a place it would still be right to go on.
        let background = match job.is_background() {
            true => self.background.acquire().await.ok(),
            false => None,
        };
        let place = self.places.acquire().await.ok();
        let store = Arc::clone(&self.store);
        let result = tokio::task::spawn_blocking(move || store.read(job)).await;
        drop((place, background));
        Some(result.ok()?.map(|completion| vec![completion]))
    }
}
