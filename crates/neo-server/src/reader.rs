//! Reads of the database, a few side by side.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Semaphore;
use zodium_neo_storage::{ReadJob, Store};
use zodium_net::Link;

use crate::driver::Driver;

/// Reads side by side. Each holds what it has found until it is sent.
const READS_MAX: usize = 8;
/// A read waits while more bytes than this wait to be sent to the peer that it is for.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// Places for reads.
pub(crate) struct Reader {
    store: Arc<dyn Store>,
    places: Semaphore,
}

impl Reader {
    pub(crate) fn new(store: Arc<dyn Store>) -> Reader {
        Reader { store, places: Semaphore::new(READS_MAX) }
    }
}

impl Driver {
    /// Runs a read; `link` is the connection that it is for.
    pub(crate) fn read(self: &Rc<Driver>, job: ReadJob, link: Option<Link>) {
        let driver = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if let Some(link) = link {
                // Of a connection that has ended, the result is ignored.
                link.drained(UNSENT_BYTES_MAX).await;
            }
            // The semaphore is never closed; without a place it would still be right to go on.
            let place = driver.reader.places.acquire().await.ok();
            let store = Arc::clone(&driver.reader.store);
            let result = tokio::task::spawn_blocking(move || store.read(job)).await;
            drop(place);
            // A thread that panics ends the process.
            if let Ok(result) = result {
                driver.done(result.map(|completion| vec![completion]));
            }
        });
    }
}
