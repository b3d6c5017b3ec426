//! Loads of many objects at once: each storage gets its requests with one write, and all requests
//! are sent before an answer is awaited.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tracing::debug;
use zodium_neo::NodeId;
use zodium_neo::messages::AskObject;
use zodium_types::{Oid, Tid};

use crate::NeoError;
use crate::cache::{Current, CurrentRevisions};
use crate::connection::{Connection, Then};
use crate::promise::Promise;
use crate::reads::{Loaded, Reads, Unverified, answer, loaded_of};

/// Requests that are sent before their answers are awaited. It bounds what answers take in memory.
const TOGETHER: usize = 1000;
/// Answers to prefetches that may be on their way. Further prefetches are left out.
const PREFETCHED_MAX: usize = 4096;

/// A load that a storage was asked for.
type Asked = Option<(Arc<Connection>, Promise<Unverified>)>;

/// Prefetches that are not answered yet.
#[derive(Clone, Default)]
pub(crate) struct Prefetches(Arc<AtomicUsize>);

/// Counts one of them as long as it lives.
struct Prefetch(Arc<AtomicUsize>);

impl Drop for Prefetch {
    fn drop(&mut self) {
        // Relaxed: the count bounds memory, and guards nothing.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Prefetches {
    fn room(&self) -> usize {
        PREFETCHED_MAX.saturating_sub(self.0.load(Ordering::Relaxed))
    }

    fn begin(&self) -> Prefetch {
        self.0.fetch_add(1, Ordering::Relaxed);
        Prefetch(Arc::clone(&self.0))
    }
}

impl Reads<'_> {
    /// For each pair the last record of an object before a transaction, in the order of the pairs.
    pub(crate) fn load_many(&self, asked: &[(Oid, Tid)]) -> Vec<Result<Loaded, NeoError>> {
        let mut loaded = Vec::with_capacity(asked.len());
        // The reason why no storage can be asked for anything now.
        let mut failure = None;
        for loads in asked.chunks(TOGETHER) {
            let sent = match failure {
                None => self.ask_together(loads),
                Some(_) => loads.iter().map(|_| None).collect(),
            };
            for (load, sent) in loads.iter().zip(sent) {
                loaded.push(match &failure {
                    None => self.awaited(*load, sent, &mut failure),
                    Some(error) => Err(error.clone()),
                });
            }
        }
        loaded
    }

    /// Waits for an answer. Without one, or if it is useless, other storages are asked.
    fn awaited(
        &self,
        (oid, before): (Oid, Tid),
        asked: Asked,
        failure: &mut Option<NeoError>,
    ) -> Result<Loaded, NeoError> {
        let answered = asked.map(|(connection, promise)| {
            let found = answer(&connection, promise);
            let record = found.and_then(|found| found.verify_for(oid, &connection));
            if let (Err(error), Some(node)) = (&record, connection.node)
                && error.is_of_node()
            {
                self.cluster.routing.write().failed(node, Instant::now());
            }
            loaded_of(record)
        });
        let loaded = match answered {
            Some(Ok(loaded)) => return Ok(loaded),
            Some(Err(error @ NeoError::Interrupted)) => Err(error),
            Some(Err(_)) | None => self.load(oid, None, Some(before)),
        };
        if let Err(error) = &loaded
            && !matches!(error, NeoError::Damaged { .. })
        {
            // The others would wait as long, and fail as well.
            *failure = Some(error.clone());
        }
        loaded
    }

    /// Sends requests, each to a storage that serves reads of the object. Those that could not be
    /// sent are loaded one by one later, which tells why.
    fn ask_together(&self, loads: &[(Oid, Tid)]) -> Vec<Asked> {
        let mut asked: Vec<Asked> = loads.iter().map(|_| None).collect();
        let Ok(session) = self.session(self.cluster.deadline()) else { return asked };
        for (node, places) in self.places(loads.iter().map(|(oid, _)| *oid)) {
            let Ok(connection) = self.cluster.storage(&session, node) else { continue };
            let mut promises = Vec::with_capacity(places.len());
            let requests = places.iter().map(|place| {
                let (then, promise) = connection.promise(Unverified::of);
                promises.push((*place, promise));
                (loads[*place], then)
            });
            let sent = ask_all(&connection, requests.collect());
            for (place, promise) in promises.into_iter().take(sent) {
                asked[place] = Some((Arc::clone(&connection), promise));
            }
        }
        asked
    }

    /// Has current revisions come into memory, without waiting for them. A hint: it does nothing
    /// for storages that are not connected.
    pub(crate) fn prefetch(&self, oids: &[Oid], before: Tid, prefetches: &Prefetches) {
        let current = &self.cluster.current;
        let is_unknown = |oid: &&Oid| current.find(**oid).is_none();
        let oids: Vec<_> =
            oids.iter().filter(is_unknown).take(prefetches.room()).copied().collect();
        for (node, places) in self.places(oids.iter().copied()) {
            let Some(connection) = self.cluster.links.existing(node) else { continue };
            let requests = places.iter().map(|place| {
                let oid = oids[*place];
                ((oid, before), kept(oid, &connection, current, prefetches.begin()))
            });
            ask_all(&connection, requests.collect());
        }
    }

    /// The storages to ask, with the places of their objects.
    fn places(&self, oids: impl Iterator<Item = Oid>) -> BTreeMap<NodeId, Vec<usize>> {
        let (routing, now) = (self.cluster.routing.read(), Instant::now());
        let mut places: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (place, oid) in oids.enumerate() {
            let Some(partition) = routing.of_oid(oid) else { continue };
            let nodes = routing.readable(partition, routing.spread_of(oid), now);
            if let Some(node) = nodes.first() {
                places.entry(*node).or_default().push(place);
            }
        }
        places
    }
}

/// Sends requests with one write; how many of them will be answered, from the first one on.
fn ask_all(connection: &Arc<Connection>, requests: Vec<((Oid, Tid), Then)>) -> usize {
    let mut sent = 0;
    let asked = connection.send(|batch| {
        requests.into_iter().try_for_each(|((oid, before), then)| {
            batch.ask(AskObject { oid, at: None, before: Some(before) }, then)?;
            sent += 1;
            Ok(())
        })
    });
    if let Err(error) = asked {
        debug!(peer = %connection.peer(), %error, sent, "not all loads could be requested");
    }
    sent
}

/// Keeps an answer in memory, if it is current.
fn kept(
    oid: Oid,
    connection: &Arc<Connection>,
    current: &Arc<CurrentRevisions>,
    prefetch: Prefetch,
) -> Then {
    // First, so that a commit during the read makes the answer stale.
    let (number, current) = (current.now(), Arc::clone(current));
    // The connection keeps what follows until it has ended.
    let connection = Arc::downgrade(connection);
    Box::new(move |answered| {
        let _prefetch = prefetch;
        let (Ok(message), Some(connection)) = (answered, connection.upgrade()) else { return };
        let found = Unverified::of(message).map(|found| found.verify_for(oid, &connection));
        if let Some(Ok(record)) = found
            && let (None, Some(data)) = (record.next, record.data)
        {
            current.insert(oid, Current { serial: record.serial, data }, number);
        }
    })
}
