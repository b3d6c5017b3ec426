//! The connector thread: finds the primary master, catches up with what was missed, and does so
//! again when the master is lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::{debug, error, info, warn};
use zodium_neo::messages::{AskFinalTID, NodeInformation, NotPrimaryMaster, RequestIdentification};
use zodium_neo::{ErrorCode, Extra, Map, Message, NodeState, NodeType, Value};
use zodium_storage::Committed;
use zodium_types::{Address, Tid};

use crate::NeoError;
use crate::backup;
use crate::cluster::Cluster;
use crate::commits::Unresolved;
use crate::connection::{Connection, LOOK_INTERVAL, Receiver};
use crate::reads::Reads;
use crate::session::{self, IDENTIFICATION_TIME_MAX, Session};

/// Interval between the first attempts at the same master. A cluster that has lost its primary one
/// has another after some 100 ms.
const RETRY: Duration = Duration::from_millis(50);
/// Each further interval is twice the one before, but at most this.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Most reasons that are logged before the next connection.
const TOLD_MAX: usize = 10;
/// So many times in a row a master's word that another one is primary is followed at once.
const REDIRECTIONS_MAX: u32 = 5;
/// So many times in a row a primary master that takes no clients yet is asked again, before others
/// are tried.
const WAITS_MAX: u32 = 20;

/// Where to look for the primary master.
struct Search {
    given: Vec<Address>,
    /// Those of which masters have told. One of them is tried after each round of the given ones:
    /// where they cannot be reached, each costs the time of a connect.
    others: VecDeque<Address>,
    /// The address that a name led to last, for when names cannot be looked up.
    led_to: Option<(Address, Address)>,
    /// The next of the given ones; behind them, one of the others. At 0 a round begins.
    next: usize,
    /// The master to try before all others.
    hint: Option<Address>,
    redirections: u32,
    waits: u32,
    pause: Duration,
    /// Why it was not found, since it was there last: each reason is logged once.
    told: BTreeSet<String>,
}

/// What a master sends without being asked.
struct MasterReceiver {
    cluster: std::sync::Weak<Cluster>,
    other: Mutex<Option<NotPrimaryMaster>>,
    /// The masters of the cluster, as the primary one tells of them.
    masters: Mutex<Vec<Address>>,
    ended: Mutex<Sender<()>>,
}

/// Runs until the client is closed.
pub(crate) fn run(cluster: &Arc<Cluster>) {
    let masters = cluster.options.masters.clone();
    let mut search = Search::new(masters);
    while !cluster.is_over() {
        let address = search.take();
        let (ended, end) = channel();
        let receiver = MasterReceiver {
            cluster: Arc::downgrade(cluster),
            other: Mutex::default(),
            masters: Mutex::default(),
            ended: Mutex::new(ended),
        };
        let receiver = Arc::new(receiver);
        match establish(cluster, &search.reached_as(&address), &receiver) {
            Ok(session) => {
                info!(master = %address, client = %session.id, "connected to the NEO cluster");
                search.found(&address, session.master.transport.peer());
                cluster.connected(&session);
                note_last_transaction(cluster, &session);
                // The other end is in the receiver, which lives as long as the connection.
                match session.is_backup {
                    true => backup::follow(cluster, &session, &end),
                    false => look_until(cluster, &session, &end),
                }
                cluster.disconnected("the connection to the primary master was lost");
                search.learn(&receiver.masters.lock());
                if !cluster.is_over() {
                    warn!(master = %address, "lost the primary master, looking for one");
                }
            }
            Err(error @ NeoError::Truncated { .. }) => {
                error!(%error, "the NEO cluster cannot be used any more");
                cluster.end(error);
            }
            Err(error) => {
                let reason = reason_of(&error, &address);
                if search.is_news(&reason) {
                    info!(reason, "not connected to the NEO cluster, trying again");
                }
                cluster.disconnected(&reason);
                let at_once = if error.code() == Some(ErrorCode::NotReady) {
                    search.wait_for(&address);
                    false
                } else {
                    search.redirect(receiver.other.lock().take())
                };
                if !at_once {
                    cluster.sleep(search.take_pause());
                }
            }
        }
    }
}

/// Looks at the nodes until the connection to the master has ended.
fn look_until(cluster: &Cluster, session: &Session, end: &mpsc::Receiver<()>) {
    while end.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        session.master.look_and_ask();
        cluster.links.all().iter().for_each(|link| link.look());
    }
}

/// Why a master was no help.
fn reason_of(error: &NeoError, master: &Address) -> String {
    match error.code() {
        Some(ErrorCode::NotReady) => format!(
            "the primary master at {master} takes no clients, since the cluster does not run: \
             `zodium neo status` says why"
        ),
        _ => error.to_string(),
    }
}

impl Search {
    fn new(given: Vec<Address>) -> Search {
        Search {
            given,
            others: VecDeque::new(),
            led_to: None,
            next: 0,
            hint: None,
            redirections: 0,
            waits: 0,
            pause: RETRY,
            told: BTreeSet::new(),
        }
    }

    /// The next master to try.
    fn take(&mut self) -> Address {
        if let Some(hint) = self.hint.take() {
            return hint;
        }
        if self.next == self.given.len() {
            self.next = 0;
            if let Some(other) = self.others.pop_front() {
                self.others.push_back(other.clone());
                return other;
            }
        }
        let address = self.given[self.next].clone();
        self.next += 1;
        if self.next == self.given.len() && self.others.is_empty() {
            self.next = 0;
        }
        address
    }

    /// Where a master is connected to: by its name, unless that cannot be looked up now.
    fn reached_as(&self, address: &Address) -> Address {
        match (&self.led_to, address) {
            (Some((name, last)), Address::Tcp { host, port })
                if name == address && (host.as_str(), *port).to_socket_addrs().is_err() =>
            {
                last.clone()
            }
            _ => address.clone(),
        }
    }

    /// Takes the masters of which the primary one tells, in the place of those of before.
    fn learn(&mut self, masters: &[Address]) {
        self.others.clear();
        self.add(masters);
    }

    /// Adds masters that are not known yet.
    fn add(&mut self, masters: &[Address]) {
        for master in masters {
            if !self.given.contains(master) && !self.others.contains(master) {
                self.others.push_back(master.clone());
            }
        }
    }

    /// Notes the primary master, and the address that it was reached at: it is tried first when it
    /// is lost.
    fn found(&mut self, address: &Address, peer: Option<&str>) {
        let peer = peer.and_then(|peer| peer.parse().ok());
        if let Some(peer) = peer.filter(|peer| peer != address) {
            self.led_to = Some((address.clone(), peer));
        }
        (self.redirections, self.waits, self.pause) = (0, 0, RETRY);
        self.told.clear();
        let place = self.given.iter().position(|one| one == address);
        self.next = place.unwrap_or(0);
        self.hint = place.is_none().then(|| address.clone());
    }

    /// Whether a reason is to be logged.
    fn is_news(&mut self, reason: &str) -> bool {
        self.told.len() < TOLD_MAX && self.told.insert(reason.to_owned())
    }

    /// How long to wait before the next round.
    fn take_pause(&mut self) -> Duration {
        let next = (self.pause * 2).min(RETRY_MAX);
        std::mem::replace(&mut self.pause, next)
    }

    /// After a primary master has said that it takes no clients yet: it is asked again, as a try of
    /// others may take longer than it needs.
    fn wait_for(&mut self, primary: &Address) {
        self.waits += 1;
        match self.waits <= WAITS_MAX {
            true => self.hint = Some(primary.clone()),
            false => self.waits = 0,
        }
    }

    /// Follows what a master said; whether to try at once.
    fn redirect(&mut self, other: Option<NotPrimaryMaster>) -> bool {
        self.waits = 0;
        let Some(NotPrimaryMaster { primary, masters }) = other else {
            // A round over all masters is a try of each; then comes a pause.
            return self.next != 0;
        };
        let masters = masters.into_iter();
        let masters: Vec<Address> =
            masters.map(|one| Address::Tcp { host: one.host, port: one.port }).collect();
        // It may know fewer than the primary one has told of.
        self.add(&masters);
        let primary = primary.and_then(|index| masters.get(index as usize));
        self.redirections += 1;
        if self.redirections > REDIRECTIONS_MAX {
            self.redirections = 0;
            return false;
        }
        self.hint = primary.cloned();
        self.hint.is_some() || self.next != 0
    }
}

/// Connects to a master, which must be the primary one.
fn establish(
    cluster: &Arc<Cluster>,
    address: &Address,
    receiver: &Arc<MasterReceiver>,
) -> Result<Arc<Session>, NeoError> {
    // First, so that nothing of the new session is told before what was missed.
    cluster.commits.hold();
    cluster.routing.write().reset();
    let receiver: Arc<dyn Receiver> = Arc::<MasterReceiver>::clone(receiver);
    let master = Connection::open(("master", None), address, cluster.security(), receiver)?;
    let established = identify(cluster, &master).and_then(|(session, last)| {
        if session.is_backup {
            backup::settle(cluster);
        }
        catch_up(cluster, &session, last)?;
        Ok(session)
    });
    if let Err(error) = &established {
        master.end(&error.to_string());
    }
    established
}

/// Introduces this client; gives the last transaction of the cluster too.
fn identify(cluster: &Cluster, master: &Arc<Connection>) -> Result<(Arc<Session>, Tid), NeoError> {
    let read_only = ("read_only", Value::Bool(true));
    let extra: Extra<'_> = Map(Vec::from_iter(cluster.options.read_only.then_some(read_only)));
    let request = RequestIdentification {
        node_type: NodeType::Client,
        id: None,
        address: None,
        cluster: &cluster.options.cluster,
        id_timestamp: None,
        extra,
    };
    let accepted = master.ask(request, |answer| match answer {
        Message::AcceptIdentification(accepted) => accepted.your_id,
        _ => None,
    })?;
    let id = accepted.wait_for(IDENTIFICATION_TIME_MAX).ok_or_else(|| session::slow(master))??;
    // Its answer comes after the nodes and the partition table.
    let last = session::ask_last(master)?;
    let is_backup = cluster.options.read_only && session::is_backup(master)?;
    let routing = cluster.routing.read();
    if !routing.is_operational() {
        let reason = "some partitions have no running storage";
        return Err(NeoError::lost(master.peer(), reason));
    }
    let id_timestamp = routing.id_timestamp(id);
    Ok((Arc::new(Session { master: Arc::clone(master), id, id_timestamp, is_backup }), last))
}

/// Tells of what was missed since the last session, and settles own finishes.
fn catch_up(cluster: &Arc<Cluster>, session: &Arc<Session>, last: Tid) -> Result<(), NeoError> {
    let seen = cluster.commits.last_tid();
    if seen > last && session.is_backup {
        // Storages that were killed fetch again what they had not noted as complete.
        let reason = "the backup cluster is behind what it has shown";
        return Err(NeoError::lost(session.master.peer(), reason));
    }
    if seen > last {
        return Err(NeoError::Truncated { seen, now: last });
    }
    let reads = Reads::in_session(cluster, session);
    let mut own = BTreeMap::new();
    let mut lost = Vec::new();
    let mut failed = None;
    for finish in cluster.commits.take_unresolved() {
        match final_tid(&reads, session, finish.ttid) {
            Ok(Some(tid)) => drop(own.insert(tid, finish)),
            Ok(None) => lost.push(finish),
            Err(error) => {
                failed = Some(error);
                cluster.commits.unresolved(finish);
            }
        }
    }
    let missed = match failed {
        None if seen == Tid::ZERO => Ok(Vec::new()),
        None => missed(&reads, cluster.commits.last_transaction(), seen, last),
        Some(error) => Err(error),
    };
    match missed {
        Ok(missed) => {
            cluster.commits.catch_up(last, missed, own);
            lost.into_iter().for_each(|Unresolved { ttid, done, .. }| {
                done(Err(NeoError::NotCommitted { ttid }.into()));
            });
            Ok(())
        }
        Err(error) => {
            own.into_values().chain(lost).for_each(|one| cluster.commits.unresolved(one));
            Err(error)
        }
    }
}

/// The transactions after `seen`. Others may have committed since a truncation: so the last one
/// that was there, `known`, must still be there.
fn missed(reads: &Reads<'_>, known: Tid, seen: Tid, last: Tid) -> Result<Vec<Committed>, NeoError> {
    if known != Tid::ZERO && !reads.has_transaction(known)? {
        return Err(NeoError::Truncated { seen: known, now: last });
    }
    reads.committed(seen.next(), last)
}

/// Learns whether the last tid is that of a transaction, for [`missed`]. In a backup cluster it may
/// be one before the next transaction.
fn note_last_transaction(cluster: &Arc<Cluster>, session: &Arc<Session>) {
    let last = cluster.commits.last_tid();
    if cluster.commits.last_transaction() >= last {
        return;
    }
    match Reads::in_session(cluster, session).has_transaction(last) {
        Ok(true) => cluster.commits.note_transaction(last),
        Ok(false) => {}
        Err(error) => debug!(%last, %error, "the last transaction was not found"),
    }
}

/// The tid of a transaction that was being finished; `None` if it was not committed.
fn final_tid(reads: &Reads<'_>, session: &Session, ttid: Tid) -> Result<Option<Tid>, NeoError> {
    let asked = session.master.ask(AskFinalTID { ttid }, |answer| match answer {
        Message::AnswerFinalTID(answer) => Some(answer.tid),
        _ => None,
    })?;
    match asked.wait()? {
        // The master does not know: the storages do.
        Some(Tid::MAX) => reads.final_tid(ttid),
        known => Ok(known),
    }
}

/// Notes which masters there are.
fn note_masters(masters: &mut Vec<Address>, told: &[NodeInformation]) {
    for node in told.iter().filter(|node| node.node_type == NodeType::Master) {
        let Some(address) = &node.address else { continue };
        let address = Address::Tcp { host: address.host.clone(), port: address.port };
        masters.retain(|master| *master != address);
        if node.state != NodeState::Unknown {
            masters.push(address);
        }
    }
}

impl Receiver for MasterReceiver {
    fn notified(&self, connection: &Connection, message: Message<'_>) {
        let Some(cluster) = self.cluster.upgrade() else { return };
        match message {
            Message::InvalidateObjects(one) => cluster.commits.invalidated(one.tid, one.oids),
            Message::NotPrimaryMaster(other) => *self.other.lock() = Some(other),
            Message::NotifyNodeInformation(told) => {
                let is_dropped = told.nodes.iter().any(|node| {
                    node.node_type == NodeType::Client && node.state == NodeState::Unknown
                });
                note_masters(&mut self.masters.lock(), &told.nodes);
                for node in told.nodes.iter().filter(|node| node.state == NodeState::Running) {
                    node.id.into_iter().for_each(|id| cluster.links.forget_failure(id));
                }
                let stopped = cluster.routing.write().nodes_told(told);
                for node in stopped {
                    cluster.links.close(node, "the master says that it is not running");
                }
                if is_dropped {
                    connection.end("the master has dropped this client");
                }
            }
            Message::SendPartitionTable(told) => {
                let taken = cluster.routing.write().table_told(told);
                taken.unwrap_or_else(|error| connection.end(&error.to_string()));
            }
            Message::NotifyPartitionChanges(told) => {
                let taken = cluster.routing.write().changes_told(&told);
                taken.unwrap_or_else(|error| connection.end(&error.to_string()));
            }
            Message::NotifyClusterInformation(told) => {
                info!(state = told.state.name(), "the NEO cluster changes its state");
            }
            Message::StopOperation(_) => warn!("the NEO cluster stops its operation"),
            other => debug!(message = other.name(), "not for clients"),
        }
    }

    fn ended(&self, _: &Connection) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.links.close_all("the connection to the primary master was lost");
        }
        // The connector may have given up already.
        let _ = self.ended.lock().send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        Address::Tcp { host: "h".to_owned(), port }
    }

    fn search(ports: &[u16]) -> Search {
        let masters = ports.iter().map(|port| address(*port)).collect();
        Search::new(masters)
    }

    fn not_primary(primary: Option<u32>, ports: &[u16]) -> Option<NotPrimaryMaster> {
        let masters = ports.iter();
        let masters =
            masters.map(|port| zodium_neo::Address { host: "h".to_owned(), port: *port }).collect();
        Some(NotPrimaryMaster { primary, masters })
    }

    #[test]
    fn masters_are_tried_in_turn_with_a_pause_after_each_round() {
        let mut search = search(&[1, 2]);
        assert_eq!(search.take(), address(1));
        assert!(search.redirect(None), "the second one has not been tried");
        assert_eq!(search.take(), address(2));
        assert!(!search.redirect(None));
        search.found(&address(2), None);
        assert_eq!(search.take(), address(2), "the last primary first");
    }

    #[test]
    fn one_of_the_masters_of_which_the_primary_tells_is_tried_after_each_round() {
        let mut search = search(&[1, 2]);
        search.learn(&[3, 1, 4].map(address));
        for ports in [[1, 2, 3], [1, 2, 4], [1, 2, 3]] {
            for port in ports {
                assert_eq!(search.take(), address(port));
                assert_eq!(search.redirect(None), port <= 2, "a pause after the round");
            }
        }
        search.take();
        search.take();
        search.learn(&[]);
        assert_eq!(search.take(), address(1), "those of before are forgotten");
    }

    #[test]
    fn a_primary_of_which_another_one_told_is_tried_first_when_it_is_lost() {
        let mut search = search(&[1, 2]);
        search.take();
        search.found(&address(3), None);
        search.learn(&[4, 3].map(address));
        for port in [3, 1, 2, 4, 1, 2, 3] {
            assert_eq!(search.take(), address(port));
        }
    }

    #[test]
    fn a_primary_that_takes_no_clients_yet_is_asked_again() {
        let mut search = search(&[1]);
        search.found(&address(1), None);
        search.learn(&[1, 2, 3].map(address));
        for other in [2, 3] {
            for _ in 0..=WAITS_MAX {
                assert_eq!(search.take(), address(1));
                search.wait_for(&address(1));
            }
            assert_eq!(search.take(), address(other), "it may not be the primary one any more");
            assert!(!search.redirect(None));
        }
    }

    #[test]
    fn a_master_that_is_not_primary_only_adds_to_what_the_primary_told() {
        let mut search = search(&[1]);
        search.learn(&[1, 2, 3].map(address));
        assert!(search.redirect(not_primary(Some(1), &[1, 4])));
        assert_eq!(search.others, [2, 3, 4].map(address));
        search.learn(&[1, 3].map(address));
        assert_eq!(search.others, [address(3)]);
    }

    #[test]
    fn a_name_that_cannot_be_looked_up_leads_to_the_address_of_before() {
        let name = Address::Tcp { host: "master.invalid".to_owned(), port: 1 };
        let numeric = |host: &str| Address::Tcp { host: host.to_owned(), port: 1 };
        let mut search = Search::new(vec![name.clone(), numeric("127.0.0.9")]);
        assert_eq!(search.reached_as(&name), name);
        search.found(&name, Some("127.0.0.8:1"));
        assert_eq!(search.reached_as(&name), numeric("127.0.0.8"));
        assert_eq!(search.reached_as(&numeric("127.0.0.9")), numeric("127.0.0.9"));
        // Another one was the primary meanwhile.
        search.found(&numeric("127.0.0.9"), Some("127.0.0.9:1"));
        assert_eq!(search.reached_as(&name), numeric("127.0.0.8"));
    }

    #[test]
    fn a_master_that_the_cluster_has_dropped_is_forgotten() {
        let node = |port, state| NodeInformation {
            node_type: NodeType::Master,
            address: Some(zodium_neo::Address { host: "h".to_owned(), port }),
            id: None,
            state,
            id_timestamp: None,
        };
        let mut masters = Vec::new();
        note_masters(&mut masters, &[node(1, NodeState::Running), node(2, NodeState::Down)]);
        note_masters(&mut masters, &[node(1, NodeState::Unknown), node(2, NodeState::Running)]);
        assert_eq!(masters, [address(2)]);
    }

    #[test]
    fn masters_tell_of_the_primary_and_of_others() {
        let mut search = search(&[1]);
        assert_eq!(search.take(), address(1));
        assert!(search.redirect(not_primary(Some(1), &[1, 3])));
        assert_eq!((search.take(), search.others.len()), (address(3), 1));
        assert!(!search.redirect(not_primary(None, &[1, 3])));
        // Two masters that name each other are not asked without a pause for ever.
        let at_once = (0..20).filter(|_| search.redirect(not_primary(Some(0), &[1, 3]))).count();
        assert!((10..20).contains(&at_once), "{at_once}");
        assert!(!search.redirect(not_primary(Some(7), &[1])), "an index that leads nowhere");
    }
}
