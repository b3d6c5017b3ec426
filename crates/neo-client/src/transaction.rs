//! A transaction on its way into the cluster: stores to all cells, conflicts, vote.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use bytes::Bytes;
use zodium_neo::messages::{
    AbortTransaction, AskBeginTransaction, AskCheckCurrentSerial, AskRelockObject, AskStoreObject,
    AskStoreTransaction, AskVoteTransaction, FailedVote, PackRequest,
};
use zodium_neo::{Checksum, Message, NodeId, OBJECT_BYTES_MAX, Partition, StoredData};
use zodium_storage::{
    NewBody, Prepared, SharedConflict, SharedTransaction, SharedWrite, StorageError,
};
use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::NeoError;
use crate::cluster::Cluster;
use crate::connection::{Attended, Batch, Connection, Then};
use crate::reads::{Loaded, Reads};
use crate::session::Session;
use crate::stores::{Event, Kind, Stores};

/// Most objects of a transaction: the limit of NEO.
const OBJECTS_MAX: usize = (1 << 21) - 1;
/// Bytes of data that are compressed before they are sent.
const SENT_BYTES: usize = 1 << 20;

/// A transaction that is not finished. Dropped, it is aborted.
pub(crate) struct NeoTransaction {
    cluster: Arc<Cluster>,
    /// The transaction ends with it.
    session: Arc<Session>,
    ttid: Tid,
    metadata: TransactionMetadata,
    pack: Option<PackRequest>,
    stores: Stores,
    /// The connections to storages that were asked.
    connections: BTreeMap<NodeId, Attended>,
    sender: Sender<Event>,
    events: Receiver<Event>,
    /// Whether the storages must be told of an abort.
    is_open: bool,
}

/// What a finish says.
pub(crate) struct Finish {
    pub(crate) session: Arc<Session>,
    pub(crate) ttid: Tid,
    /// Objects that were written and not deleted.
    pub(crate) oids: Vec<Oid>,
    /// All objects with a new revision.
    pub(crate) changed: Vec<Oid>,
    pub(crate) deleted: Vec<Partition>,
    pub(crate) checked: Vec<Partition>,
    pub(crate) pack: Option<PackRequest>,
}

/// A store or a check, ready to be sent to each cell.
struct Request {
    oid: Oid,
    serial: Tid,
    kind: Kind,
    /// `None` for a deletion and for a check.
    stored: Option<StoredData>,
    data_serial: Option<Tid>,
}

impl Request {
    fn bytes(&self) -> usize {
        self.stored.as_ref().map_or(0, |stored| stored.value.len())
    }

    /// Adds it to what is sent to a storage, with what takes the answer.
    fn add(
        &self,
        batch: &mut Batch<'_>,
        ttid: Tid,
        (node, events): (NodeId, &Sender<Event>),
    ) -> Result<(), NeoError> {
        let Request { oid, serial, .. } = *self;
        let then = stored_then(events, node, oid);
        if self.kind == Kind::Check {
            return batch.ask(AskCheckCurrentSerial { ttid, oid, serial }, then);
        }
        let stored = self.stored.as_ref();
        let store = AskStoreObject {
            oid,
            serial,
            compression: stored.map_or(0, |stored| stored.compression),
            checksum: stored.map_or(Checksum::ZERO, |stored| Checksum(stored.hash)),
            data: stored.map_or(&[], |stored| &stored.value),
            data_serial: self.data_serial,
            ttid: Some(ttid),
        };
        batch.ask(store, then)
    }
}

impl NeoTransaction {
    /// Begins a transaction at the primary master; a copied one brings its tid.
    pub(crate) fn begin(
        cluster: &Arc<Cluster>,
        metadata: TransactionMetadata,
        (pack, tid): (Option<PackRequest>, Option<Tid>),
    ) -> Result<NeoTransaction, NeoError> {
        if cluster.options.read_only {
            return Err(NeoError::ReadOnly);
        }
        let session = cluster.session(cluster.deadline())?;
        let begun = session.master.ask(AskBeginTransaction { tid }, |answer| match answer {
            Message::AnswerBeginTransaction(begun) => Some(begun.ttid),
            _ => None,
        })?;
        let ttid = begun.wait()?;
        let (sender, events) = channel();
        cluster.transactions.lock().insert(ttid, sender.clone());
        Ok(NeoTransaction {
            cluster: Arc::clone(cluster),
            session,
            ttid,
            metadata,
            pack,
            stores: Stores::default(),
            connections: BTreeMap::new(),
            sender,
            events,
            is_open: true,
        })
    }

    /// Stores and checks; the conflicts.
    pub(crate) fn store_all(
        &mut self,
        writes: &[SharedWrite],
        reads: &[(Oid, Tid)],
    ) -> Result<Vec<SharedConflict>, NeoError> {
        let (mut requests, mut bytes) = (Vec::new(), 0);
        for write in writes {
            let request = self.store_request(write)?;
            bytes += request.bytes();
            requests.push(request);
            if bytes >= SENT_BYTES {
                self.send(&mem::take(&mut requests))?;
                bytes = 0;
            }
        }
        requests.extend(reads.iter().map(|(oid, serial)| Request {
            oid: *oid,
            serial: *serial,
            kind: Kind::Check,
            stored: None,
            data_serial: None,
        }));
        self.send(&requests)?;
        self.settle()?;
        let conflicts = self.stores.conflicts().iter();
        let conflict = |(oid, tid): (&Oid, &Tid)| SharedConflict { oid: *oid, committed: *tid };
        Ok(conflicts.map(conflict).collect())
    }

    /// What storages are sent of a write.
    fn store_request(&self, write: &SharedWrite) -> Result<Request, NeoError> {
        let (data, data_serial) = match &write.body {
            NewBody::Data(data) => (Some(data.clone()), None),
            NewBody::Spooled(spooled) => {
                let read = spooled.read();
                let data = read.map_err(|error| NeoError::lost(&"the spool".into(), error))?;
                (Some(data), None)
            }
            // Cells that are being replicated may lack the data: they are sent too.
            NewBody::SameAs(source) => (self.data_of(write.oid, *source)?, Some(*source)),
            NewBody::Deleted => (None, None),
        };
        if let Some(bytes) = data.as_ref().map(Bytes::len).filter(|it| *it > OBJECT_BYTES_MAX) {
            return Err(NeoError::TooLarge { oid: write.oid, bytes });
        }
        let encode = match self.cluster.options.compress {
            true => StoredData::compress,
            false => StoredData::plain,
        };
        let stored = data.map(|data| encode(&data));
        let kind = if stored.is_some() { Kind::Write } else { Kind::Delete };
        let data_serial = data_serial.filter(|_| stored.is_some());
        Ok(Request { oid: write.oid, serial: write.serial, kind, stored, data_serial })
    }

    fn data_of(&self, oid: Oid, serial: Tid) -> Result<Option<Bytes>, NeoError> {
        match Reads::new(&self.cluster).load(oid, Some(serial), None)? {
            Loaded::Found(record) => Ok(record.data),
            Loaded::NotThen | Loaded::Never => Err(NeoError::Unsupported {
                what: "the data that the undo needs were packed meanwhile",
            }),
        }
    }

    /// Sends stores and checks to all cells of their objects, to each storage at once.
    fn send(&mut self, requests: &[Request]) -> Result<(), NeoError> {
        self.session.check()?;
        let mut by_node: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (index, request) in requests.iter().enumerate() {
            let (partition, nodes) = {
                let routing = self.cluster.routing.read();
                let partition = routing.of_oid(request.oid).ok_or(NeoError::MasterLost)?;
                (partition, routing.writable(partition))
            };
            self.stores.begin(request.oid, partition, request.kind);
            let mut is_sent = false;
            for node in nodes {
                if self.connection(node).is_some() {
                    by_node.entry(node).or_default().push(index);
                    is_sent = true;
                }
            }
            if !is_sent {
                let reason = "no storage with a cell of it can be reached".into();
                return Err(NeoError::NoCell { partition, reason });
            }
        }
        for (node, indices) in by_node {
            let Some(connection) = self.connection(node) else { continue };
            let mut count = 0;
            let sent = connection.send(|batch| {
                for index in indices {
                    requests[index].add(batch, self.ttid, (node, &self.sender))?;
                    count += 1;
                }
                Ok(())
            });
            (0..count).for_each(|_| self.stores.asked(node));
            match sent {
                Err(error) if error.is_of_node() => self.stores.lost(node),
                sent => sent?,
            }
        }
        Ok(())
    }

    /// The connection to a storage that takes part; `None` when it has failed.
    fn connection(&mut self, node: NodeId) -> Option<Arc<Connection>> {
        if self.stores.has_failed(node) {
            return None;
        }
        if let Some(connection) = self.connections.get(&node) {
            return Some(Arc::clone(&**connection));
        }
        match self.cluster.storage(&self.session, node) {
            Ok(connection) => {
                self.connections.insert(node, connection.attended());
                Some(connection)
            }
            Err(_) => {
                self.stores.lost(node);
                None
            }
        }
    }

    /// Waits for all answers. Gives locks back meanwhile that older transactions wait for.
    fn settle(&mut self) -> Result<(), NeoError> {
        // Also what came since the last time.
        while let Ok(event) = self.events.try_recv() {
            self.take(event)?;
        }
        while !self.stores.is_settled() {
            let waited = self.cluster.patience.wait(None, |until| self.next_event(until))?;
            // The transaction has a sender itself.
            self.take(waited.ok_or(NeoError::Closed)?)?;
        }
        self.session.check()
    }

    /// The next event, unless it comes later than this.
    fn next_event(&self, until: Option<Instant>) -> Option<Event> {
        match until {
            None => self.events.recv().ok(),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                self.events.recv_timeout(left).ok()
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<(), NeoError> {
        let deadlock = match &event {
            Event::Deadlock { node, oid } => Some((*node, *oid)),
            _ => None,
        };
        let is_held = self.stores.take(event)?;
        let Some((node, oid)) = deadlock.filter(|_| is_held) else { return Ok(()) };
        let Some(connection) = self.connections.get(&node) else { return Ok(()) };
        let request = AskRelockObject { ttid: self.ttid, oid };
        let then = relocked_then(&self.sender, node, oid);
        match connection.send(|batch| batch.ask(request, then)) {
            Ok(()) => self.stores.asked(node),
            Err(_) => self.stores.lost(node),
        }
        Ok(())
    }

    /// Has all storages that take part make the transaction durable.
    fn vote_all(&mut self) -> Result<(), NeoError> {
        let oids = self.stores.changed();
        if oids.len() > OBJECTS_MAX {
            let what =
                "a NEO cluster takes fewer than 2,097,152 objects in a transaction; split it";
            return Err(NeoError::Unsupported { what });
        }
        self.session.check()?;
        let (home, keepers) = {
            let routing = self.cluster.routing.read();
            let home = routing.of_tid(self.ttid).ok_or(NeoError::MasterLost)?;
            (home, routing.writable(home))
        };
        let mut promises = Vec::new();
        for node in &keepers {
            let Some(connection) = self.connection(*node) else { continue };
            let TransactionMetadata { user, description, extension } = &self.metadata;
            let (ttid, oids, pack) = (self.ttid, oids.clone(), self.pack.clone());
            let request = AskStoreTransaction { ttid, user, description, extension, oids, pack };
            let promise = connection.ask(request, |answer| match answer {
                Message::AnswerStoreTransaction(_) => Some(()),
                _ => None,
            });
            promises.push((*node, promise));
        }
        for (node, connection) in &self.connections {
            if keepers.contains(node) || self.stores.has_failed(*node) {
                continue;
            }
            let promise =
                connection.ask(AskVoteTransaction { ttid: self.ttid }, |answer| match answer {
                    Message::AnswerVoteTransaction(_) => Some(()),
                    _ => None,
                });
            promises.push((*node, promise));
        }
        let mut kept = 0;
        for (node, promise) in promises {
            match promise.and_then(|promise| promise.wait()) {
                Ok(()) => kept += usize::from(keepers.contains(&node)),
                Err(error) if error.is_of_node() => self.stores.lost(node),
                Err(error) => return Err(error),
            }
        }
        if kept == 0 {
            return Err(NeoError::NotLocked { partition: home });
        }
        self.check_failures()
    }

    /// Whether the transaction can be committed though storages failed.
    fn check_failures(&mut self) -> Result<(), NeoError> {
        if let Some(partition) = self.stores.unlocked() {
            return Err(NeoError::NotLocked { partition });
        }
        let failed: Vec<NodeId> = {
            let routing = self.cluster.routing.read();
            self.stores.failed().filter(|node| routing.is_running(*node)).collect()
        };
        if failed.is_empty() {
            return self.session.check();
        }
        let asked = self.session.master.ask(FailedVote { ttid: self.ttid, failed }, |answer| {
            matches!(answer, Message::Error(_)).then_some(())
        });
        // An error that is no success is a refusal.
        asked?.wait()?;
        self.session.check()
    }

    /// Votes the transaction; what its finish says.
    pub(crate) fn vote(mut self) -> Result<Finish, NeoError> {
        self.vote_all()?;
        self.is_open = false;
        self.cluster.transactions.lock().remove(&self.ttid);
        let of = |kind| self.stores.of_kind(kind);
        let oids: Vec<Oid> = of(Kind::Write).map(|(oid, _)| oid).collect();
        let changed = self.stores.changed();
        let partitions = |kind| {
            let mut all: Vec<Partition> = of(kind).map(|(_, partition)| partition).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let (deleted, checked) = (partitions(Kind::Delete), partitions(Kind::Check));
        let (session, ttid, pack) = (Arc::clone(&self.session), self.ttid, self.pack.take());
        Ok(Finish { session, ttid, oids, changed, deleted, checked, pack })
    }

    fn abort(&self) {
        let nodes: Vec<NodeId> = self.stores.involved().collect();
        abort(&self.session, self.ttid, nodes, self.connections.values());
    }
}

impl Drop for NeoTransaction {
    fn drop(&mut self) {
        self.cluster.transactions.lock().remove(&self.ttid);
        if self.is_open {
            self.abort();
        }
    }
}

/// Tells the storages themselves, after all stores, and the master for those that are not reached.
/// Connections that have ended need not be told.
fn abort<'c>(
    session: &Session,
    ttid: Tid,
    nodes: Vec<NodeId>,
    connections: impl Iterator<Item = &'c Attended>,
) {
    for connection in connections {
        let _ = connection.notify(AbortTransaction { ttid, nodes: Vec::new() });
    }
    let _ = session.master.notify(AbortTransaction { ttid, nodes });
}

impl Finish {
    /// Gives up the voted transaction.
    pub(crate) fn abort(self, cluster: &Cluster) {
        let nodes: Vec<NodeId> = {
            let routing = cluster.routing.read();
            let oids = self.changed.iter().filter_map(|oid| routing.of_oid(*oid));
            let partitions = oids.chain(self.checked.iter().copied());
            let partitions = partitions.chain(routing.of_tid(self.ttid));
            let mut nodes: Vec<_> =
                partitions.flat_map(|partition| routing.writable(partition)).collect();
            nodes.sort_unstable();
            nodes.dedup();
            nodes
        };
        abort(&self.session, self.ttid, nodes, std::iter::empty());
    }
}

impl SharedTransaction for NeoTransaction {
    fn store(
        &mut self,
        writes: &[SharedWrite],
        reads: &[(Oid, Tid)],
    ) -> Result<Vec<SharedConflict>, StorageError> {
        Ok(self.store_all(writes, reads)?)
    }

    fn vote(self: Box<Self>) -> Result<Prepared, StorageError> {
        Ok(Prepared::new(NeoTransaction::vote(*self)?))
    }
}

/// Hands the answer to a store or a check to its transaction, which may be over.
fn stored_then(events: &Sender<Event>, node: NodeId, oid: Oid) -> Then {
    let events = events.clone();
    Box::new(move |answer| {
        let _ = events.send(match answer {
            Ok(Message::AnswerStoreObject(answer)) => {
                Event::Stored { node, oid, conflict: answer.conflict }
            }
            Ok(Message::AnswerCheckCurrentSerial(answer)) => {
                Event::Stored { node, oid, conflict: answer.conflict }
            }
            Ok(other) => Event::Failed { node, error: unexpected(node, &other) },
            Err(error) => Event::Failed { node, error },
        });
    })
}

fn relocked_then(events: &Sender<Event>, node: NodeId, oid: Oid) -> Then {
    let events = events.clone();
    Box::new(move |answer| {
        let _ = events.send(match answer {
            Ok(Message::AnswerRelockObject(answer)) => {
                let conflict = answer.conflict.map(|conflict| conflict.conflict);
                Event::Relocked { node, oid, conflict }
            }
            Ok(other) => Event::Failed { node, error: unexpected(node, &other) },
            Err(error) => Event::Failed { node, error },
        });
    })
}

fn unexpected(node: NodeId, message: &Message<'_>) -> NeoError {
    NeoError::Unexpected { peer: node.to_string().into(), message: message.name() }
}
