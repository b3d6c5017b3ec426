//! A model of a cluster: masters and storages on sockets, over one database in memory.
//!
//! All storages have all partitions. Nothing is locked: what a test is about, it asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use zodium_neo::ClusterState::{BackingUp, Running};
use zodium_neo::messages::{
    AcceptIdentification, AnswerBeginTransaction, AnswerCheckCurrentSerial, AnswerClusterState,
    AnswerFinalTID, AnswerLastTransaction, AnswerNewOIDs, AnswerObject, AnswerObjectHistory,
    AnswerRelockObject, AnswerStoreObject, AnswerStoreTransaction, AnswerTIDsFrom,
    AnswerTransactionFinished, AnswerTransactionInformation, AnswerVoteTransaction, AskObject,
    Cell, Error, HistoryRecord, InvalidateObjects, NodeInformation, NotPrimaryMaster,
    NotifyDeadlock, NotifyNodeInformation, Pong, RelockConflict, SendPartitionTable,
};
use zodium_neo::{
    Address, CellState, Checksum, ErrorCode, Message, NodeId, NodeState, NodeType, StoredData,
    TableId,
};
use zodium_types::{Oid, Tid};

use crate::link::Link;

pub(crate) const NAME: &str = "model";
pub(crate) const PARTITIONS: u32 = 3;

/// A record: its data, if it is no deletion.
type Revision = Option<StoredData>;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) last_tid: u64,
    pub(crate) objects: BTreeMap<Oid, BTreeMap<Tid, Revision>>,
    pub(crate) transactions: BTreeMap<Tid, Vec<Oid>>,
    /// Committed transactions by temporary tid.
    finals: BTreeMap<Tid, Tid>,
    /// What was stored, by temporary tid and storage.
    pub(crate) stored: BTreeMap<(Tid, NodeId), BTreeMap<Oid, Revision>>,
    /// Storages with damaged data.
    pub(crate) damaged: BTreeSet<NodeId>,
    /// Storages that close each connection.
    pub(crate) silent: BTreeSet<NodeId>,
    /// Loads by storage.
    pub(crate) loads: BTreeMap<NodeId, usize>,
    /// Loads are answered when so many wait, all of them together.
    pub(crate) loads_together: usize,
    waiting_loads: Vec<WaitingLoad>,
    /// What the master does with the next finish.
    pub(crate) at_finish: AtFinish,
    /// An object whose lock the first storage asks back while it delays all other stores.
    pub(crate) deadlock: Option<Oid>,
    /// Stores that wait for that.
    delayed: Vec<u32>,
    /// What relocks are answered with, and how many were asked for.
    pub(crate) relock_conflict: Option<Tid>,
    pub(crate) relocks: usize,
    pub(crate) aborts: usize,
    clients: Vec<Arc<Link>>,
    pub(crate) next_oid: u64,
    /// Clients are told of no commits.
    pub(crate) is_backup: bool,
}

/// A load that is not answered yet.
struct WaitingLoad {
    node: NodeId,
    link: Arc<Link>,
    id: u32,
    oid: Oid,
    at: Option<Tid>,
    before: Option<Tid>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum AtFinish {
    #[default]
    Commit,
    /// Commits, and is lost before the answer.
    CommitAndLeave,
    /// Is lost before the commit.
    Leave,
}

/// A running model.
pub(crate) struct Model {
    pub(crate) state: Mutex<State>,
    changed: Condvar,
    pub(crate) master: SocketAddr,
    storages: Vec<SocketAddr>,
}

pub(crate) fn storage(number: u32) -> NodeId {
    NodeId::of(NodeType::Storage, number).unwrap()
}

fn client() -> NodeId {
    NodeId::of(NodeType::Client, 1).unwrap()
}

fn listen(serve: impl Fn(Arc<Link>) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(Arc::new(Link::new(stream))));
        }
    });
    address
}

impl Model {
    /// A cluster of one master and so many storages.
    pub(crate) fn start(storages: u32) -> Arc<Model> {
        Arc::new_cyclic(|this: &std::sync::Weak<Model>| {
            let nodes = (1..=storages).map(|number| {
                let this = this.clone();
                listen(move |link| {
                    if let Some(model) = this.upgrade() {
                        model.serve_storage(storage(number), &link);
                    }
                })
            });
            let storages = nodes.collect();
            let serving = this.clone();
            let master = listen(move |link| {
                if let Some(model) = serving.upgrade() {
                    model.serve_master(&link);
                }
            });
            let state = State { last_tid: 1000, ..State::default() };
            Model { state: Mutex::new(state), changed: Condvar::new(), master, storages }
        })
    }

    /// A master that is not the primary one.
    pub(crate) fn secondary(self: &Arc<Self>) -> SocketAddr {
        let masters = vec![self.master.into()];
        listen(move |link| {
            link.read(|_, _| {
                link.notify(NotPrimaryMaster { primary: Some(0), masters: masters.clone() });
                false
            });
        })
    }

    /// Commits a transaction of another client.
    pub(crate) fn commit(&self, objects: &[(u64, &str)]) -> Tid {
        let objects = objects.iter().map(|(oid, data)| {
            let data = (!data.is_empty()).then(|| StoredData::compress(data.as_bytes()));
            (Oid(*oid), data)
        });
        let mut state = self.state.lock();
        let tid = state.commit(objects.collect());
        let oids = state.transactions[&tid].clone();
        for link in state.clients.iter().filter(|_| !state.is_backup) {
            link.notify(InvalidateObjects { tid, oids: oids.clone() });
        }
        tid
    }

    /// Ends all connections with the master.
    pub(crate) fn lose_clients(&self) {
        std::mem::take(&mut self.state.lock().clients).iter().for_each(|link| link.close());
    }

    /// Waits until the state is as wanted.
    pub(crate) fn wait(&self, is_wanted: impl Fn(&State) -> bool) {
        let mut state = self.state.lock();
        while !is_wanted(&state) {
            let timeout = std::time::Duration::from_secs(20);
            assert!(!self.changed.wait_for(&mut state, timeout).timed_out(), "it never comes");
        }
    }

    fn serve_master(&self, link: &Arc<Link>) {
        link.read(|id, message| {
            let goes_on = self.master_asked(link, id, &message);
            self.changed.notify_all();
            goes_on
        });
    }

    fn master_asked(&self, link: &Arc<Link>, id: u32, message: &Message<'_>) -> bool {
        let mut state = self.state.lock();
        match message {
            Message::RequestIdentification(request) if request.cluster != NAME => {
                let message = "invalid cluster name";
                link.answer(id, Error { code: ErrorCode::ProtocolError, message });
                return false;
            }
            Message::RequestIdentification(_) => {
                self.accept(link, id);
                state.clients.push(Arc::clone(link));
            }
            Message::AskLastTransaction(_) => {
                link.answer(id, AnswerLastTransaction { tid: Tid(state.last_tid) });
            }
            Message::AskClusterState(_) => {
                let state = if state.is_backup { BackingUp } else { Running };
                link.answer(id, AnswerClusterState { state: Some(state) });
            }
            Message::AskBeginTransaction(_) => {
                state.last_tid += 100;
                link.answer(id, AnswerBeginTransaction { ttid: Tid(state.last_tid) });
            }
            Message::AskNewOIDs(request) => {
                let first = state.next_oid + 1;
                state.next_oid += u64::from(request.count);
                let oids = (first..=state.next_oid).map(Oid).collect();
                link.answer(id, AnswerNewOIDs { oids });
            }
            Message::AskFinishTransaction(request) => {
                let at_finish = std::mem::take(&mut state.at_finish);
                if at_finish != AtFinish::Leave {
                    let tid = state.finish(request.ttid);
                    if at_finish == AtFinish::Commit {
                        let ttid = request.ttid;
                        link.answer(id, AnswerTransactionFinished { ttid, tid });
                    }
                }
                return at_finish == AtFinish::Commit;
            }
            // As a master that has just been elected.
            Message::AskFinalTID(_) => link.answer(id, AnswerFinalTID { tid: Some(Tid::MAX) }),
            Message::FailedVote(_) => {
                link.answer(id, Error { code: ErrorCode::Ack, message: "" });
            }
            Message::AbortTransaction(_) => state.aborts += 1,
            Message::Ping(_) => link.answer(id, Pong {}),
            other => panic!("the model master does not know {}", other.name()),
        }
        true
    }

    fn accept(&self, link: &Link, id: u32) {
        let node_type = NodeType::Master;
        let master = NodeId::of(NodeType::Master, 1);
        link.answer(id, AcceptIdentification { node_type, id: master, your_id: Some(client()) });
        let node = |node_type, address, id| NodeInformation {
            node_type,
            address,
            id: Some(id),
            state: NodeState::Running,
            id_timestamp: Some(1.5),
        };
        let storages = (1..).zip(&self.storages);
        let storages = storages.map(|(number, address)| {
            node(NodeType::Storage, Some(Address::from(*address)), storage(number))
        });
        let primary = node(NodeType::Master, Some(self.master.into()), master.unwrap());
        let nodes = [node(NodeType::Client, None, client()), primary];
        let nodes = nodes.into_iter().chain(storages).collect();
        link.notify(NotifyNodeInformation { timestamp: 2.0, nodes });
        let cell = |number| Cell { node: storage(number), state: CellState::UpToDate };
        let row: Vec<Cell> = (1..).map(cell).take(self.storages.len()).collect();
        let rows = vec![row; PARTITIONS as usize];
        link.notify(SendPartitionTable { table: Some(TableId(1)), replicas: 0, rows });
    }

    fn serve_storage(&self, node: NodeId, link: &Arc<Link>) {
        link.read(|id, message| {
            if self.state.lock().silent.contains(&node) {
                return false;
            }
            self.storage_asked(node, link, id, &message);
            self.changed.notify_all();
            true
        });
    }

    fn storage_asked(&self, node: NodeId, link: &Arc<Link>, id: u32, message: &Message<'_>) {
        let mut state = self.state.lock();
        match message {
            Message::RequestIdentification(request) => {
                assert_eq!((request.id, request.id_timestamp), (Some(client()), Some(1.5)));
                let (node_type, your_id) = (NodeType::Storage, request.id);
                link.answer(id, AcceptIdentification { node_type, id: Some(node), your_id });
            }
            Message::AskObject(request) => {
                *state.loads.entry(node).or_default() += 1;
                let AskObject { oid, at, before } = *request;
                let link = Arc::clone(link);
                state.waiting_loads.push(WaitingLoad { node, link, id, oid, at, before });
                if state.waiting_loads.len() >= state.loads_together {
                    let loads = std::mem::take(&mut state.waiting_loads);
                    loads.iter().for_each(|load| state.load(load));
                }
            }
            Message::AskObjectHistory(request) => {
                let revisions = state.objects.get(&request.oid).into_iter().flatten().rev();
                let record = |(tid, _): (&Tid, &Revision)| HistoryRecord { serial: *tid, size: 1 };
                let records = revisions.map(record).take(request.end as usize).collect();
                link.answer(id, AnswerObjectHistory { oid: request.oid, records });
            }
            Message::AskTIDsFrom(request) => {
                let range = state.transactions.range(request.min_tid..=request.max_tid);
                let is_here =
                    |tid: &&Tid| tid.0 % u64::from(PARTITIONS) == request.partition.0.into();
                let tids = range.map(|(tid, _)| tid).filter(is_here).copied();
                link.answer(id, AnswerTIDsFrom { tids: tids.collect() });
            }
            Message::AskTransactionInformation(request) => {
                let (tid, oids) = (request.tid, state.transactions[&request.tid].clone());
                let (user, description, extension) = (&b""[..], &b""[..], &b""[..]);
                let packed = false;
                let answer = AnswerTransactionInformation {
                    tid,
                    user,
                    description,
                    extension,
                    packed,
                    oids,
                };
                link.answer(id, answer);
            }
            Message::AskFinalTID(request) => {
                link.answer(id, AnswerFinalTID { tid: state.finals.get(&request.ttid).copied() });
            }
            other => state.write_asked((node, link, id), other),
        }
    }
}

impl State {
    fn current(&self, oid: Oid) -> Option<Tid> {
        self.objects.get(&oid)?.last_key_value().map(|(tid, _)| *tid)
    }

    fn conflict(&self, oid: Oid, serial: Tid) -> Option<Tid> {
        self.current(oid).filter(|current| *current != serial)
    }

    fn commit(&mut self, objects: BTreeMap<Oid, Revision>) -> Tid {
        self.last_tid += 100;
        let tid = Tid(self.last_tid);
        self.transactions.insert(tid, objects.keys().copied().collect());
        for (oid, revision) in objects {
            self.objects.entry(oid).or_default().insert(tid, revision);
        }
        tid
    }

    fn finish(&mut self, ttid: Tid) -> Tid {
        let stored = self.stored.iter().find(|((one, _), _)| *one == ttid);
        let objects = stored.map(|(_, objects)| objects.clone()).unwrap_or_default();
        let tid = self.commit(objects);
        self.finals.insert(ttid, tid);
        tid
    }

    fn load(&self, load: &WaitingLoad) {
        let WaitingLoad { node, link, id, oid, at, before } = load;
        let (id, oid, at, before) = (*id, *oid, *at, *before);
        let refuse = |code| link.answer(id, Error { code, message: "" });
        let Some(revisions) = self.objects.get(&oid) else {
            return refuse(ErrorCode::OidDoesNotExist);
        };
        let end = at.map(|at| at.next()).or(before).unwrap_or(Tid::MAX);
        let found = revisions.range(..end).next_back();
        let found = found.filter(|(serial, _)| at.is_none_or(|at| at == **serial));
        let Some((serial, stored)) = found else { return refuse(ErrorCode::OidNotFound) };
        let mut data = stored.as_ref().map(|stored| stored.value.clone()).unwrap_or_default();
        if self.damaged.contains(node) && !data.is_empty() {
            data[0] ^= 1;
        }
        link.answer(
            id,
            AnswerObject {
                oid,
                serial: *serial,
                next_serial: revisions.range(serial.next()..).next().map(|(next, _)| *next),
                compression: stored.as_ref().map(|stored| stored.compression),
                checksum: stored.as_ref().map_or(Checksum::ZERO, |stored| Checksum(stored.hash)),
                data: &data,
                data_serial: None,
            },
        );
    }

    fn write_asked(&mut self, (node, link, id): (NodeId, &Link, u32), message: &Message<'_>) {
        match message {
            Message::AskStoreObject(request) => {
                let (oid, ttid) = (request.oid, request.ttid.unwrap());
                let conflict = self.conflict(oid, request.serial);
                if conflict.is_none() {
                    let (compression, hash) = (request.compression, request.checksum.0);
                    let data = StoredData { compression, hash, value: request.data.to_vec() };
                    let revision = (request.checksum != Checksum::ZERO).then_some(data);
                    self.stored.entry((ttid, node)).or_default().insert(oid, revision);
                }
                match self.deadlock.filter(|_| node == storage(1)) {
                    None => link.answer(id, AnswerStoreObject { conflict }),
                    Some(wanted) if wanted == oid => {
                        link.answer(id, AnswerStoreObject { conflict });
                        link.notify(NotifyDeadlock { ttid, oid });
                    }
                    // It waits for the older transaction.
                    Some(_) => self.delayed.push(id),
                }
            }
            Message::AskRelockObject(_) => {
                self.relocks += 1;
                self.deadlock = None;
                for id in std::mem::take(&mut self.delayed) {
                    link.answer(id, AnswerStoreObject { conflict: None });
                }
                let conflict = self.relock_conflict.map(|conflict| {
                    let serial = Tid::ZERO;
                    RelockConflict { serial, conflict, stored: None }
                });
                link.answer(id, AnswerRelockObject { conflict });
            }
            Message::AskCheckCurrentSerial(request) => {
                let conflict = self.conflict(request.oid, request.serial);
                link.answer(id, AnswerCheckCurrentSerial { conflict });
            }
            Message::AskStoreTransaction(_) => link.answer(id, AnswerStoreTransaction {}),
            Message::AskVoteTransaction(_) => link.answer(id, AnswerVoteTransaction {}),
            Message::AbortTransaction(_) => self.aborts += 1,
            other => panic!("the model storage does not know {}", other.name()),
        }
    }
}
