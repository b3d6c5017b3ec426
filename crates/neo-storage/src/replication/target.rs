//! Fetches what a partition lacks from another storage: transactions first, then records.
//!
//! Both come in chunks. This node says what it has of a range; the source sends what is missing,
//! and says what is too much. A chunk is in the database before the next one is asked for.

use std::collections::{BTreeMap, VecDeque};

use tracing::debug;
use zodium_neo::messages::{
    AnswerFetchObjects, AnswerFetchTransactions, AskFetchObjects, AskFetchTransactions,
};
use zodium_neo::{Address, Map, Message, NodeId, Partition};
use zodium_types::{Oid, Tid};

use super::fetching::Current;
use super::{BackupSource, Replication};
use crate::cluster::Cluster;
use crate::database::NewRecord;
use crate::handling::{Handled, Refusal};
use crate::links::{Asked, Links};
use crate::{ConnectionId, Node};

/// Transactions, or records, of a chunk.
const CHUNK: u32 = 1000;
/// Records that one change of the database writes while clients commit.
const SLICE_RECORDS: usize = 100;

impl Replication {
    /// Begins with the partition that is most behind, unless one is being replicated. Those that
    /// sources refuse come last.
    pub(crate) fn replicate_next(&mut self, links: &mut Links, cluster: &Cluster) {
        if self.current.is_some() || self.wanted.is_empty() || self.is_foreign {
            return;
        }
        let order = |partition: &Partition| {
            let cell = self.cells.get(partition).copied().unwrap_or_default();
            (cell.refusals, cell.next_record, cell.waits_for.is_some())
        };
        let mut partitions: Vec<_> = self.wanted.keys().copied().collect();
        partitions.sort_by_key(order);
        for partition in partitions {
            let source = self.sources.get(&partition).cloned();
            let address = match &source {
                Some(source) => Some(source.address.clone()),
                None => self.source_of(cluster, partition),
            };
            if let Some(address) = address {
                return self.begin_partition(links, cluster, partition, address, source);
            }
        }
    }

    /// A running storage that has the partition.
    fn source_of(&mut self, cluster: &Cluster, partition: Partition) -> Option<Address> {
        cluster.table()?;
        let addresses = cluster.sources_of(partition);
        self.turn = self.turn.wrapping_add(1);
        addresses.get(self.turn % addresses.len().max(1)).cloned()
    }

    fn begin_partition(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        partition: Partition,
        address: Address,
        source: Option<BackupSource>,
    ) {
        let Some(tid) = self.wanted.remove(&partition) else { return };
        let pause = self.pause_for(partition);
        let (connection, is_ready) = links.connection_to(&address, cluster.members(), pause);
        self.last_attempt += 1;
        self.current = Some(Current {
            attempt: self.last_attempt,
            partition,
            tid,
            connection,
            source,
            asked: None,
            untold: None,
            common: None,
            common_record: None,
            compares: None,
            has_begun: false,
            transactions: Vec::new(),
            records: Vec::new(),
        });
        if is_ready {
            self.fetch_first(links);
        }
    }

    /// A connection to a source has ended.
    pub(crate) fn source_lost(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        connection: ConnectionId,
    ) {
        let current = self.current.as_ref();
        if current.is_some_and(|current| current.connection == connection) {
            debug!("the source of a replication is gone");
            self.give_up(links, cluster);
        }
    }

    /// A source refuses to send the partition; whether one did so before.
    pub(crate) fn source_refused(&mut self, connection: ConnectionId) -> bool {
        let current = self.current.as_ref().filter(|current| current.connection == connection);
        let cell = current.and_then(|current| self.cells.get_mut(&current.partition));
        let Some(cell) = cell else { return false };
        cell.refusals = cell.refusals.saturating_add(1);
        cell.refusals > 1
    }

    /// Gives up on a source. Another one, or the same one later, goes on.
    pub(super) fn give_up(&mut self, links: &mut Links, cluster: &Cluster) {
        let Some(current) = self.current.take() else { return };
        self.has_failed = true;
        if self.cells.contains_key(&current.partition) {
            self.wanted.entry(current.partition).or_insert(current.tid);
        }
        self.replicate_next(links, cluster);
    }

    /// A storage has accepted a connection of this node.
    pub(crate) fn source_accepted(&mut self, links: &mut Links, connection: ConnectionId) {
        let current = self.current.as_ref();
        if current.is_some_and(|current| current.connection == connection && !current.has_begun) {
            self.fetch_first(links);
        }
    }

    /// Handles what a source sends. `has_commits` says whether clients commit.
    pub(crate) fn source_says(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        (connection, id): (ConnectionId, u32),
        message: Message<'_>,
        has_commits: bool,
    ) -> Handled {
        let current = self.current.as_mut();
        let Some(current) = current.filter(|current| current.expects(connection, id)) else {
            return Ok(());
        };
        match message {
            Message::AddTransaction(message) => {
                return current.add_transaction(message, self.limits_metadata);
            }
            Message::AddObject(message) => return current.add_record(&message),
            Message::AnswerFetchTransactions(message) => {
                links.answered((connection, id));
                self.transactions_fetched(links, cluster, message);
            }
            Message::AnswerFetchObjects(message) => {
                links.answered((connection, id));
                self.records_fetched(links, cluster, message, has_commits);
            }
            other => return Err(Refusal::unexpected(&other)),
        }
        Ok(())
    }

    fn fetch_first(&mut self, links: &mut Links) {
        let Some(current) = &mut self.current else { return };
        current.has_begun = true;
        let (partition, tid) = (current.partition, current.tid);
        let cell = self.cells.get(&partition).copied().unwrap_or_default();
        debug!(%partition, from = %cell.next_transaction, until = %tid, "replicating");
        self.fetch_transactions(links, cell.next_transaction, true);
    }

    fn fetch_transactions(&self, links: &mut Links, min_tid: Tid, is_first: bool) {
        let Some(current) = &self.current else { return };
        let (attempt, partition, max_tid) = (current.attempt, current.partition, current.tid);
        // In a backup cluster, storages may be ahead of others of the same cluster.
        let asks = is_first && !current.source.as_ref().is_some_and(BackupSource::is_own_cluster);
        links.write_lazily(
            move |database| {
                let reads = database.reads();
                // Begins with the last transaction that is here, to learn whether it is there.
                let before = Tid(min_tid.0.saturating_sub(1)).min(max_tid);
                let common = match asks {
                    true => reads.newest_tids(&[partition], before, (0, 1))?.pop(),
                    false => None,
                };
                let min_tid = common.unwrap_or(min_tid);
                Ok((min_tid, common, reads.tids(partition, (min_tid, max_tid), CHUNK)?))
            },
            move |node, (min_tid, common, tids)| {
                if let Some(current) = node.replication.current_mut(attempt) {
                    current.common = common;
                }
                let last = tids.last().filter(|_| tids.len() == CHUNK as usize);
                let untold = last.map(|tid| (tid.next(), Oid(0)));
                let question = AskFetchTransactions {
                    partition,
                    length: CHUNK,
                    min_tid,
                    max_tid,
                    tids,
                    ask_pack_info: is_first,
                };
                node.replication.ask_source(&mut node.links, attempt, untold, question);
            },
        );
    }

    /// The partition that is being fetched, in this attempt.
    fn current(&self, attempt: u64) -> Option<&Current> {
        self.current.as_ref().filter(|current| current.attempt == attempt)
    }

    fn current_mut(&mut self, attempt: u64) -> Option<&mut Current> {
        self.current.as_mut().filter(|current| current.attempt == attempt)
    }

    /// Asks the source, unless the attempt has been given up meanwhile.
    fn ask_source<'a>(
        &mut self,
        links: &mut Links,
        attempt: u64,
        untold: Option<(Tid, Oid)>,
        message: impl Into<Message<'a>>,
    ) {
        let Some(connection) = self.current(attempt).map(|current| current.connection) else {
            return;
        };
        let asked = links.ask(connection, message, Asked::Fetch);
        if let Some(current) = &mut self.current {
            (current.asked, current.untold) = (asked, untold);
        }
    }

    fn transactions_fetched(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        answer: AnswerFetchTransactions,
    ) {
        let (Some(current), Some(own)) = (&mut self.current, cluster.id()) else { return };
        let AnswerFetchTransactions { next_tid, deleted, completed_pack } = answer;
        current.asked = None;
        if let Some(tid) = current.lacking(&deleted) {
            return self.source_lacks(links, cluster, tid);
        }
        let next_tid = next_tid.map(|tid| (tid, Oid(0)));
        let next_tid = current.next(next_tid).map(|(tid, _)| tid);
        let (attempt, partition) = (current.attempt, current.partition);
        let transactions = std::mem::take(&mut current.transactions);
        links.count().fetched_transactions += transactions.len() as u64;
        links.write_lazily(
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
                // An order that is approved the source may be carrying out.
                let last = node.packing.last();
                let packs = packs.map(|(packed, completed)| (packed, last.max(completed)));
                node.replication.transactions_written(&mut node.links, attempt, packs, next_tid);
            },
        );
    }

    /// Goes on after a chunk of transactions. `packs` is the last pack of this cell, and the last
    /// one that the source may have carried out; `next_tid` is where the next chunk begins.
    fn transactions_written(
        &mut self,
        links: &mut Links,
        attempt: u64,
        packs: Option<(Tid, Tid)>,
        next_tid: Option<Tid>,
    ) {
        if self.current(attempt).is_none() {
            return;
        }
        let Some(current) = &mut self.current else { return };
        let cell = self.cells.get_mut(&current.partition);
        if let Some((packed, packs)) = packs {
            // Has all records compared, if the source may have carried out a pack that this cell
            // has not.
            let known = packed.max(cell.as_ref().map_or(Tid::ZERO, |cell| cell.compared));
            current.compares = (packs > known).then_some(packs);
        }
        let Some(cell) = cell else { return };
        match next_tid {
            Some(next) => {
                cell.next_transaction = next;
                self.fetch_transactions(links, next, false);
            }
            None => {
                cell.next_transaction = current.tid.next();
                let (next_record, compares) = (cell.next_record, current.compares);
                let first = compares.map_or(next_record, |_| Tid::ZERO);
                self.fetch_records(links, first, Oid(0), compares.is_none());
            }
        }
    }

    fn fetch_records(&self, links: &mut Links, min_tid: Tid, min_oid: Oid, is_first: bool) {
        let Some(current) = &self.current else { return };
        let (attempt, partition, max_tid) = (current.attempt, current.partition, current.tid);
        let asks = is_first && current.source.is_none();
        links.write_lazily(
            move |database| {
                let reads = database.reads();
                // Begins with the records of the last transaction that is here, likewise.
                let last = Tid(min_tid.0.saturating_sub(1)).min(max_tid);
                let common = asks && !reads.records(partition, (last, last), Oid(0), 1)?.is_empty();
                let common = common.then_some(last);
                let min_tid = common.unwrap_or(min_tid);
                let found = reads.records(partition, (min_tid, max_tid), min_oid, CHUNK)?;
                Ok((min_tid, common, found))
            },
            move |node, (min_tid, common, found)| {
                if let Some(current) = node.replication.current_mut(attempt) {
                    current.common_record = common;
                }
                let last = found.last().filter(|_| found.len() == CHUNK as usize);
                let untold = last.map(|(tid, oid)| (*tid, Oid(oid.0 + 1)));
                let mut records = BTreeMap::<Tid, Vec<Oid>>::new();
                found.into_iter().for_each(|(tid, oid)| records.entry(tid).or_default().push(oid));
                let question = AskFetchObjects {
                    partition,
                    length: CHUNK,
                    min_tid,
                    max_tid,
                    min_oid,
                    records: Map::from_iter(records),
                };
                node.replication.ask_source(&mut node.links, attempt, untold, question);
            },
        );
    }

    fn records_fetched(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        answer: AnswerFetchObjects,
        has_commits: bool,
    ) {
        let Some(current) = &mut self.current else { return };
        current.asked = None;
        if let Some(tid) = current.lacking_record(&answer.deleted) {
            return self.source_lacks(links, cluster, tid);
        }
        let next = answer.next_tid.map(|tid| (tid, answer.next_oid.unwrap_or(Oid(0))));
        let next = current.next(next);
        let answer = AnswerFetchObjects {
            next_tid: next.map(|(tid, _)| tid),
            next_oid: next.map(|(_, oid)| oid),
            ..answer
        };
        let attempt = current.attempt;
        let records = VecDeque::from(std::mem::take(&mut current.records));
        links.count().fetched_records += records.len() as u64;
        self.write_records(links, cluster.id(), attempt, records, answer, has_commits);
    }

    /// Writes the records of a chunk. While clients commit it does so in slices, so that a vote
    /// waits for one of them at most.
    fn write_records(
        &self,
        links: &mut Links,
        own: Option<NodeId>,
        attempt: u64,
        mut records: VecDeque<(Tid, NewRecord)>,
        answer: AnswerFetchObjects,
        has_commits: bool,
    ) {
        if self.current(attempt).is_none() {
            return;
        }
        if !has_commits || records.len() <= SLICE_RECORDS {
            return self.write_last_records(links, own, records, answer);
        }
        let slice: Vec<_> = records.drain(..SLICE_RECORDS).collect();
        links.write_lazily(
            move |database| {
                slice.into_iter().try_for_each(|(tid, one)| database.add_record(tid, one))
            },
            move |node, ()| {
                let Node { links, cluster, commits, replication, .. } = node;
                let (own, has_commits) = (cluster.id(), !commits.is_empty());
                replication.write_records(links, own, attempt, records, answer, has_commits);
            },
        );
    }

    /// Writes the rest of a chunk, and notes how far the cell is.
    fn write_last_records(
        &self,
        links: &mut Links,
        own: Option<NodeId>,
        records: VecDeque<(Tid, NewRecord)>,
        answer: AnswerFetchObjects,
    ) {
        let (Some(current), Some(own)) = (&self.current, own) else { return };
        let AnswerFetchObjects { next_tid, next_oid, deleted } = answer;
        let (attempt, partition, max_tid) = (current.attempt, current.partition, current.tid);
        // The next chunk may begin within a transaction.
        let done = next_tid.map_or(max_tid, |next| Tid(next.0.saturating_sub(1)));
        links.write_as(
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
                let next = next_tid.map(|next| (next, next_oid.unwrap_or(Oid(0))));
                let Node { links, replication, .. } = node;
                if replication.records_written(links, attempt, done, next) {
                    node.partition_fetched(partition, max_tid);
                }
            },
        );
    }

    /// Goes on after a chunk of records; whether the partition is complete.
    fn records_written(
        &mut self,
        links: &mut Links,
        attempt: u64,
        done: Tid,
        next: Option<(Tid, Oid)>,
    ) -> bool {
        let Some(partition) = self.current(attempt).map(|current| current.partition) else {
            return false;
        };
        let Some(cell) = self.cells.get_mut(&partition) else { return false };
        if cell.next_record < done.next() {
            (cell.next_record, cell.refusals) = (done.next(), 0);
        }
        match next {
            Some((next_tid, next_oid)) => {
                self.fetch_records(links, next_tid, next_oid, false);
                false
            }
            None => true,
        }
    }

    /// Ends the replication of a partition; whether it has everything, and waits for nothing.
    pub(crate) fn finish(&mut self, partition: Partition, tid: Tid) -> bool {
        let compares = self.current.take().and_then(|current| current.compares);
        if let Some(cell) = self.cells.get_mut(&partition) {
            (cell.refusals, cell.was_lacked) = (0, false);
            cell.compared = compares.unwrap_or(cell.compared);
        }
        debug!(%partition, %tid, "fetched");
        self.has_failed = false;
        let cell = self.cells.get(&partition).copied().unwrap_or_default();
        let is_more =
            self.wanted.contains_key(&partition) && !self.sources.contains_key(&partition);
        cell.waits_for.is_none() && !is_more
    }
}
