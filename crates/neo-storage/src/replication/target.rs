//! Fetches what a partition lacks from another storage: transactions first, then records.
//!
//! Both come in chunks. This node says what it has of a range; the source sends what is missing,
//! and says what is too much. A chunk is in the database before the next one is asked for.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tracing::{debug, info};
use zodium_neo::messages::{
    AnswerFetchObjects, AnswerFetchTransactions, AskFetchObjects, AskFetchTransactions,
    RequestIdentification,
};
use zodium_neo::{Address, Extra, Map, Message, NodeType, Partition};
use zodium_types::{Oid, Tid};

use super::BackupSource;
use super::fetching::Current;
use crate::database::NewRecord;
use crate::handling::{Handled, Refusal};
use crate::master::unexpected;
use crate::peer::{Asked, Role};
use crate::{ConnectionId, Node};

/// Transactions, or records, of a chunk.
const CHUNK: u32 = 1000;
/// Records that one change of the database writes while clients commit.
const SLICE_RECORDS: usize = 100;
/// Pause before a source is dialled after one has failed.
const DIAL_PAUSE: Duration = Duration::from_millis(200);

impl Node {
    /// Nodes have come or gone: a source may be there.
    pub(crate) fn nodes_changed(&mut self) {
        self.replicate_next();
        self.resume_packs();
    }

    /// Begins with the partition that is most behind, unless one is being replicated.
    pub(super) fn replicate_next(&mut self) {
        let replication = &self.replication;
        if replication.current.is_some() || replication.wanted.is_empty() {
            return;
        }
        let order = |partition: &Partition| {
            let cell = replication.cells.get(partition).copied().unwrap_or_default();
            (cell.next_record, cell.waits_for.is_some())
        };
        let mut partitions: Vec<_> = replication.wanted.keys().copied().collect();
        partitions.sort_by_key(order);
        for partition in partitions {
            let source = self.replication.sources.get(&partition).cloned();
            let address = match &source {
                Some(source) => Some(source.address.clone()),
                None => self.source_of(partition),
            };
            if let Some(address) = address {
                return self.begin_partition(partition, address, source);
            }
        }
    }

    /// A running storage that has the partition.
    fn source_of(&mut self, partition: Partition) -> Option<Address> {
        let table = self.table.as_ref()?;
        let others = table.readable(partition).filter(|node| Some(*node) != self.id);
        let addresses: Vec<_> =
            others.filter_map(|node| self.members.running_address(node).cloned()).collect();
        self.replication.turn = self.replication.turn.wrapping_add(1);
        addresses.get(self.replication.turn % addresses.len().max(1)).cloned()
    }

    fn begin_partition(
        &mut self,
        partition: Partition,
        address: Address,
        source: Option<BackupSource>,
    ) {
        let Some(tid) = self.replication.wanted.remove(&partition) else { return };
        let (connection, is_ready) = self.connection_to(&address);
        self.replication.last_attempt += 1;
        self.replication.current = Some(Current {
            attempt: self.replication.last_attempt,
            partition,
            tid,
            connection,
            source,
            asked: None,
            untold: None,
            compares: None,
            has_begun: false,
            transactions: Vec::new(),
            records: Vec::new(),
        });
        if is_ready {
            self.fetch_first();
        }
    }

    /// A connection to a storage, and whether it can be used now.
    pub(crate) fn connection_to(&mut self, address: &Address) -> (ConnectionId, bool) {
        let is_there =
            |role: &Role| matches!(role, Role::Source { address: at, .. } if at == address);
        if let Some(connection) = self.peers.with(is_there).first() {
            let peer = self.peers.get(*connection);
            let is_ready =
                peer.is_some_and(|peer| matches!(peer.role, Role::Source { is_ready: true, .. }));
            return (*connection, is_ready);
        }
        // One that the storage has made serves as well: it would refuse a second one.
        let is_its = |role: &Role| match role {
            Role::Storage { node: Some(node) } => {
                self.members.running_address(*node) == Some(address)
            }
            _ => false,
        };
        if let Some(connection) = self.peers.with(is_its).first() {
            return (*connection, true);
        }
        let pause = if self.replication.has_failed { DIAL_PAUSE } else { Duration::ZERO };
        let role = Role::Source { address: address.clone(), is_ready: false };
        (self.dial(role, address.clone(), pause), false)
    }

    pub(crate) fn identify_to_source(&mut self, connection: ConnectionId) {
        let current = self.replication.current.as_ref();
        let source = current.and_then(|current| current.source.as_ref());
        // Nodes of another cluster do not know this one.
        let replicates = current.is_some_and(|current| current.connection == connection);
        let upstream = match source.filter(|_| replicates) {
            Some(source) => Some(source.cluster.clone()).filter(|name| !name.is_empty()),
            None => self.checking.upstream_of(connection).map(str::to_owned),
        };
        let own = self.id.filter(|_| upstream.is_none());
        let cluster = upstream.unwrap_or_else(|| self.settings.cluster.clone());
        let request = RequestIdentification {
            node_type: NodeType::Storage,
            id: own,
            address: Some(self.settings.address.clone()),
            cluster: &cluster,
            id_timestamp: self.id.and_then(|id| self.members.id_timestamp(id)),
            extra: Extra::default(),
        };
        self.ask(connection, request, Asked::Identification);
    }

    /// A connection to a source has ended.
    pub(crate) fn source_lost(&mut self, connection: ConnectionId) {
        let current = self.replication.current.as_ref();
        if current.is_some_and(|current| current.connection == connection) {
            debug!("the source of a replication is gone");
            self.give_up();
        }
    }

    /// Gives up on a source. Another one, or the same one later, goes on.
    fn give_up(&mut self) {
        let Some(current) = self.replication.current.take() else { return };
        self.replication.has_failed = true;
        if self.replication.cells.contains_key(&current.partition) {
            self.replication.wanted.entry(current.partition).or_insert(current.tid);
        }
        self.replicate_next();
    }

    /// Stops replicating a partition that the master has taken away.
    pub(super) fn stop_current(&mut self) {
        self.replication.current = None;
    }

    /// Handles a message of a storage that this node has dialled.
    pub(crate) fn source_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        let Message::AcceptIdentification(accepted) = message else {
            return self.storage_says(connection, id, message);
        };
        if accepted.node_type != NodeType::Storage {
            return Err(Refusal::protocol("the source of a replication is no storage"));
        }
        if let Some(peer) = self.peers.get_mut(connection)
            && let Role::Source { is_ready, .. } = &mut peer.role
        {
            *is_ready = true;
        }
        let current = self.replication.current.as_ref();
        if current.is_some_and(|current| current.connection == connection && !current.has_begun) {
            self.fetch_first();
        }
        self.check_with(connection);
        Ok(())
    }

    /// Handles what a source answers.
    pub(super) fn feeder_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        if let Message::Error(error) = &message {
            if self.answered(connection, id) == Some(Asked::Check) {
                self.check_lost(connection);
                return Ok(());
            }
            let (peer, code, reason) = (self.name_of(connection), error.code, error.message);
            info!(peer, %code, reason, "the source of a replication refuses");
            self.close(connection);
            return Ok(());
        }
        if matches!(message, Message::AnswerCheckTIDRange(_) | Message::AnswerCheckSerialRange(_)) {
            self.answered(connection, id);
            self.sum_told(connection, id, &message);
            return Ok(());
        }
        let current = self.replication.current.as_mut();
        let Some(current) = current.filter(|current| current.expects(connection, id)) else {
            return Ok(());
        };
        match message {
            Message::AddTransaction(message) => current.add_transaction(message),
            Message::AddObject(message) => return current.add_record(&message),
            Message::AnswerFetchTransactions(message) => {
                self.answered(connection, id);
                self.transactions_fetched(message);
            }
            Message::AnswerFetchObjects(message) => {
                self.answered(connection, id);
                self.records_fetched(message);
            }
            other => return Err(unexpected(&other)),
        }
        Ok(())
    }

    fn fetch_first(&mut self) {
        let Some(current) = &mut self.replication.current else { return };
        current.has_begun = true;
        let (partition, tid) = (current.partition, current.tid);
        let cell = self.replication.cells.get(&partition).copied().unwrap_or_default();
        debug!(%partition, from = %cell.next_transaction, until = %tid, "replicating");
        self.fetch_transactions(cell.next_transaction, true);
    }

    fn fetch_transactions(&mut self, min_tid: Tid, is_first: bool) {
        let Some(current) = &self.replication.current else { return };
        let (attempt, partition, max_tid) = (current.attempt, current.partition, current.tid);
        self.write_lazily(
            move |database| database.reads().tids(partition, (min_tid, max_tid), CHUNK),
            move |node, tids| {
                let last = tids.last().filter(|_| tids.len() == CHUNK as usize);
                let untold = last.map(|tid| (tid.next(), Oid(0)));
                node.ask_source(
                    attempt,
                    untold,
                    AskFetchTransactions {
                        partition,
                        length: CHUNK,
                        min_tid,
                        max_tid,
                        tids,
                        ask_pack_info: is_first,
                    },
                );
            },
        );
    }

    /// The partition that is being fetched, in this attempt.
    fn current(&self, attempt: u64) -> Option<&Current> {
        self.replication.current.as_ref().filter(|current| current.attempt == attempt)
    }

    /// Asks the source, unless the attempt has been given up meanwhile.
    fn ask_source<'a>(
        &mut self,
        attempt: u64,
        untold: Option<(Tid, Oid)>,
        message: impl Into<Message<'a>>,
    ) {
        let Some(connection) = self.current(attempt).map(|current| current.connection) else {
            return;
        };
        let asked = self.ask(connection, message, Asked::Fetch);
        if let Some(current) = &mut self.replication.current {
            (current.asked, current.untold) = (asked, untold);
        }
    }

    fn transactions_fetched(&mut self, answer: AnswerFetchTransactions) {
        let (Some(current), Some(own)) = (&mut self.replication.current, self.id) else { return };
        let AnswerFetchTransactions { next_tid, deleted, completed_pack } = answer;
        current.asked = None;
        let next_tid = next_tid.map(|tid| (tid, Oid(0)));
        let next_tid = current.next(next_tid).map(|(tid, _)| tid);
        let (attempt, partition, max_tid) = (current.attempt, current.partition, current.tid);
        let transactions = std::mem::take(&mut current.transactions);
        self.counts.fetched_transactions += transactions.len() as u64;
        self.write_lazily(
            move |database| {
                transactions.iter().try_for_each(|one| database.add_transaction(one))?;
                deleted.iter().try_for_each(|tid| database.delete_transaction(*tid))?;
                let Some(completed) = completed_pack else { return Ok(None) };
                let packed = database.reads().packed(own, partition)?;
                // What the source has not packed must be packed here.
                if completed < packed {
                    database.set_packed(own, partition, completed)?;
                }
                Ok(Some((packed, completed)))
            },
            move |node, packs| {
                if node.current(attempt).is_none() {
                    return;
                }
                if let Some((packed, completed)) = packs {
                    node.choose_records(partition, packed, completed);
                }
                let Some(cell) = node.replication.cells.get_mut(&partition) else { return };
                match next_tid {
                    Some(next) => {
                        cell.next_transaction = next;
                        node.fetch_transactions(next, false);
                    }
                    None => {
                        cell.next_transaction = max_tid.next();
                        let next_record = cell.next_record;
                        let compares = node.current(attempt).and_then(|current| current.compares);
                        let first = compares.map_or(next_record, |_| Tid::ZERO);
                        node.fetch_records(first, Oid(0));
                    }
                }
            },
        );
    }

    /// Has all records compared, if the source may have carried out a pack that this cell has not:
    /// as it says, or because an order is approved, which it may be carrying out.
    fn choose_records(&mut self, partition: Partition, packed: Tid, completed: Tid) {
        let packs = completed.max(self.packing.last());
        let cell = self.replication.cells.get(&partition);
        let known = packed.max(cell.map_or(Tid::ZERO, |cell| cell.compared));
        if let Some(current) = &mut self.replication.current {
            current.compares = (packs > known).then_some(packs);
        }
    }

    fn fetch_records(&mut self, min_tid: Tid, min_oid: Oid) {
        let Some(current) = &self.replication.current else { return };
        let (attempt, partition, max_tid) = (current.attempt, current.partition, current.tid);
        self.write_lazily(
            move |database| database.reads().records(partition, (min_tid, max_tid), min_oid, CHUNK),
            move |node, found| {
                let last = found.last().filter(|_| found.len() == CHUNK as usize);
                let untold = last.map(|(tid, oid)| (*tid, Oid(oid.0 + 1)));
                let mut records = BTreeMap::<Tid, Vec<Oid>>::new();
                found.into_iter().for_each(|(tid, oid)| records.entry(tid).or_default().push(oid));
                node.ask_source(
                    attempt,
                    untold,
                    AskFetchObjects {
                        partition,
                        length: CHUNK,
                        min_tid,
                        max_tid,
                        min_oid,
                        records: Map::from_iter(records),
                    },
                );
            },
        );
    }

    fn records_fetched(&mut self, answer: AnswerFetchObjects) {
        let Some(current) = &mut self.replication.current else { return };
        current.asked = None;
        let next = answer.next_tid.map(|tid| (tid, answer.next_oid.unwrap_or(Oid(0))));
        let next = current.next(next);
        let answer = AnswerFetchObjects {
            next_tid: next.map(|(tid, _)| tid),
            next_oid: next.map(|(_, oid)| oid),
            ..answer
        };
        let attempt = current.attempt;
        let records = VecDeque::from(std::mem::take(&mut current.records));
        self.counts.fetched_records += records.len() as u64;
        self.write_records(attempt, records, answer);
    }

    /// Writes the records of a chunk. While clients commit it does so in slices, so that a vote
    /// waits for one of them at most.
    fn write_records(
        &mut self,
        attempt: u64,
        mut records: VecDeque<(Tid, NewRecord)>,
        answer: AnswerFetchObjects,
    ) {
        if self.current(attempt).is_none() {
            return;
        }
        if self.transactions.all.is_empty() || records.len() <= SLICE_RECORDS {
            return self.write_last_records(records, answer);
        }
        let slice: Vec<_> = records.drain(..SLICE_RECORDS).collect();
        self.write_lazily(
            move |database| {
                slice.into_iter().try_for_each(|(tid, one)| database.add_record(tid, one))
            },
            move |node, ()| node.write_records(attempt, records, answer),
        );
    }

    /// Writes the rest of a chunk, and notes how far the cell is.
    fn write_last_records(
        &mut self,
        records: VecDeque<(Tid, NewRecord)>,
        answer: AnswerFetchObjects,
    ) {
        let (Some(current), Some(own)) = (&self.replication.current, self.id) else { return };
        let AnswerFetchObjects { next_tid, next_oid, deleted } = answer;
        let (attempt, partition, max_tid) = (current.attempt, current.partition, current.tid);
        // The next chunk may begin within a transaction.
        let done = next_tid.map_or(max_tid, |next| Tid(next.0.saturating_sub(1)));
        self.write_as(
            next_tid.is_none(),
            move |database| {
                for (tid, record) in records {
                    database.add_record(tid, record)?;
                }
                for (tid, oids) in deleted.0 {
                    oids.iter().try_for_each(|oid| database.delete_record(*oid, tid))?;
                }
                database.set_replicated(own, partition, done)
            },
            move |node, ()| {
                if node.current(attempt).is_none() {
                    return;
                }
                let Some(cell) = node.replication.cells.get_mut(&partition) else { return };
                cell.next_record = cell.next_record.max(done.next());
                match next_tid {
                    Some(next) => node.fetch_records(next, next_oid.unwrap_or(Oid(0))),
                    None => node.finish_partition(partition, max_tid),
                }
            },
        );
    }

    fn finish_partition(&mut self, partition: Partition, tid: Tid) {
        let compares = self.replication.current.take().and_then(|current| current.compares);
        if let (Some(packs), Some(cell)) = (compares, self.replication.cells.get_mut(&partition)) {
            cell.compared = packs;
        }
        debug!(%partition, %tid, "fetched");
        self.replication.has_failed = false;
        self.save_backup_tid();
        let replication = &self.replication;
        let cell = replication.cells.get(&partition).copied().unwrap_or_default();
        let is_more = replication.wanted.contains_key(&partition)
            && !replication.sources.contains_key(&partition);
        if cell.waits_for.is_none() && !is_more {
            self.replicated(partition, tid);
        }
        self.replicate_next();
        self.close_idle_sources();
    }

    /// Closes connections to sources when there is nothing to fetch. Those of a backup stay.
    pub(crate) fn close_idle_sources(&mut self) {
        if self.replication.current.is_some() || self.backup_tid.is_some() {
            return;
        }
        let sources = self.peers.with(|role| matches!(role, Role::Source { .. }));
        for connection in
            sources.into_iter().filter(|one| !self.checking.uses(*one)).collect::<Vec<_>>()
        {
            self.close(connection);
        }
    }
}
