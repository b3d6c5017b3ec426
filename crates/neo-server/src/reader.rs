//! Reads of the database, a few side by side.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};
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

    /// Runs a read; `link` is the connection that it is for. `None` if that has ended: nothing else
    /// needs the result. Also if the thread panicked, which ends the process.
    pub(crate) async fn run(&self, job: ReadJob, link: Option<&Link>) -> Option<Done> {
        let place = self.place(job.is_background(), link).await?;
        let store = Arc::clone(&self.store);
        let result = tokio::task::spawn_blocking(move || store.read(job)).await;
        drop(place);
        Some(result.ok()?.map(|completion| vec![completion]))
    }

    /// Waits for a place; `None` if the connection has ended meanwhile.
    async fn place(&self, is_background: bool, link: Option<&Link>) -> Option<Place<'_>> {
        if let Some(link) = link.filter(|_| is_background) {
            // The storage may be sending as much, of other partitions.
            link.set_paced();
        }
        loop {
            if let Some(link) = link {
                link.drained(UNSENT_BYTES_MAX).await;
            }
            // The semaphore is never closed; without a place it would still be right to go on.
            let background = match is_background {
                true => self.background.acquire().await.ok(),
                false => None,
            };
            let place = self.places.acquire().await.ok();
            if link.is_some_and(Link::has_ended) {
                return None;
            }
            // While it waited for the place, reads before it may have had long results.
            if link.is_none_or(|link| link.output().len() <= UNSENT_BYTES_MAX) {
                return Some(Place { _place: place, _background: background });
            }
        }
    }
}

/// The place of a read.
struct Place<'r> {
    _place: Option<SemaphorePermit<'r>>,
    _background: Option<SemaphorePermit<'r>>,
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::task::LocalSet;
    use zodium_neo_storage::{Completion, DatabaseError, ReadResult, Reads, WriteJob};
    use zodium_net::{CloseReason, Consumed, Host, Limits, Service, Session};

    use super::*;

    struct NoStore;

    impl Store for NoStore {
        fn read(&self, _: ReadJob) -> ReadResult<Completion> {
            Err(DatabaseError("there is none".into()))
        }

        fn read_together(&self, _: usize, _: &mut dyn FnMut(&dyn Reads)) -> ReadResult<()> {
            Err(DatabaseError("there is none".into()))
        }

        fn write(&self, _: bool, _: Vec<WriteJob>) -> ReadResult<Vec<Completion>> {
            Err(DatabaseError("there is none".into()))
        }
    }

    /// Keeps the links of its sessions.
    #[derive(Clone, Default)]
    struct Silent(Rc<RefCell<Vec<Link>>>);

    impl Service for Silent {
        type Session = Silent;

        fn open(&self, link: Link) -> Silent {
            self.0.borrow_mut().push(link);
            self.clone()
        }
    }

    impl Session for Silent {
        fn received(&mut self, bytes: &[u8]) -> Result<Consumed, CloseReason> {
            Ok(Consumed::Bytes(bytes.len()))
        }

        fn received_large(&mut self, _: bytes::Bytes) -> Result<(), CloseReason> {
            Ok(())
        }

        fn is_established(&self) -> bool {
            true
        }

        fn closed(&mut self) {}
    }

    #[tokio::test]
    async fn a_read_for_a_client_that_leaves_while_it_waits_is_not_carried_out() {
        let (reader, silent) = (Reader::new(Arc::new(NoStore)), Silent::default());
        let host = Host::new(silent.clone(), Arc::default(), None);
        let waiting = async {
            let places = reader.places.acquire_many(READS_MAX as u32).await.unwrap();
            let (stream, peer) = tokio::io::duplex(64);
            let serving = host.run(stream, "peer", None, Limits::default());
            let leaving = async {
                while silent.0.borrow().is_empty() {
                    tokio::task::yield_now().await;
                }
                let link = silent.0.borrow()[0].clone();
                let read = reader.place(false, Some(&link));
                let end = async {
                    drop(peer);
                    while !link.has_ended() {
                        tokio::task::yield_now().await;
                    }
                    drop(places);
                };
                assert!(tokio::join!(read, end).0.is_none());
            };
            tokio::join!(serving, leaving);
        };
        LocalSet::new().run_until(waiting).await;
        assert!(reader.place(false, None).await.is_some());
    }
}
