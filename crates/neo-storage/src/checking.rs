//! Compares a partition with its replicas, when the master asks for it.
//!
//! All parties sum up the same range of rows: first of transactions, then of records. A range has a
//! limited number of rows; the next one begins where it ends. A party with another sum is reported
//! as corrupted, and left out of the rest. With a reference, that one is right; without, all
//! parties are reported, as it is not known which of them is right.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tracing::{debug, info, warn};
use zodium_neo::messages::{
    AskCheckSerialRange, AskCheckTIDRange, CheckPartition, NotifyPartitionCorrupted,
};
use zodium_neo::{Address, CellState, Checked, Message, NodeId, Partition};
use zodium_types::{Oid, Tid};

use crate::ConnectionId;
use crate::cluster::Cluster;
use crate::database::{ReadResult, Reads};
use crate::links::{Asked, Links};
use crate::sums::{SerialSum, TidSum};

/// Rows of a range. The sum over it keeps a storage of NEO/py from other work.
const ROWS: u32 = 10_000;

/// Partitions to check.
#[derive(Debug, Default)]
pub(crate) struct Checking {
    queue: VecDeque<Order>,
    current: Option<Check>,
    /// Numbers the ranges: sums of earlier ones are ignored.
    range_number: u64,
    /// The master wants to know which copies are the same; one of NEO/py does not.
    tells_master: bool,
}

/// A partition to check.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    partition: Partition,
    /// The name of the upstream cluster of `reference`; empty for the own cluster.
    upstream: String,
    /// Where the storage listens that is right.
    reference: Option<Address>,
    min_tid: Tid,
    max_tid: Tid,
}

/// The partition that is being checked.
#[derive(Debug)]
struct Check {
    order: Order,
    reference: Option<Party>,
    parties: BTreeMap<Party, State>,
    range: Range,
}

/// Whose rows are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    /// This node.
    Own,
    Peer(ConnectionId),
}

#[derive(Debug)]
struct State {
    /// The id of its cell in messages; an upstream storage has none.
    node: Option<NodeId>,
    /// The request that it has not answered.
    asked: Option<u32>,
    /// Its sum of the current range.
    sum: Option<Sum>,
}

/// The range that is being summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Transactions { from: Tid },
    Records { from: Tid, oid: Oid },
}

/// The sum of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sum {
    Transactions(TidSum),
    Records(SerialSum),
}

impl Sum {
    /// Where the next range begins; `None` at the end of the check.
    fn next(self, min_tid: Tid) -> Option<Range> {
        match self {
            Sum::Transactions(sum) if sum.count < ROWS => {
                Some(Range::Records { from: min_tid, oid: Oid(0) })
            }
            Sum::Transactions(sum) => Some(Range::Transactions { from: sum.last.next() }),
            Sum::Records(sum) if sum.count < ROWS => None,
            Sum::Records(sum) => {
                Some(Range::Records { from: sum.last_tid, oid: Oid(sum.last_oid.0 + 1) })
            }
        }
    }
}

impl Order {
    /// The partition.
    pub(crate) fn partition(&self) -> Partition {
        self.partition
    }

    fn sum(&self, range: Range, database: &dyn Reads) -> ReadResult<Sum> {
        let (partition, max) = (self.partition, self.max_tid);
        match range {
            Range::Transactions { from } => {
                let tids = database.tids(partition, (from, max), ROWS)?;
                Ok(Sum::Transactions(TidSum::of(&tids)))
            }
            Range::Records { from, oid } => {
                let records = database.records(partition, (from, max), oid, ROWS)?;
                Ok(Sum::Records(SerialSum::of(&records)))
            }
        }
    }

    fn question(&self, range: Range) -> Message<'static> {
        let (partition, length, max_tid) = (self.partition, ROWS, self.max_tid);
        match range {
            Range::Transactions { from: min_tid } => {
                AskCheckTIDRange { partition, length, min_tid, max_tid }.into()
            }
            Range::Records { from: min_tid, oid: min_oid } => {
                AskCheckSerialRange { partition, length, min_tid, max_tid, min_oid }.into()
            }
        }
    }
}

impl Checking {
    /// The partition that is being checked.
    pub(crate) fn partition(&self) -> Option<Partition> {
        self.current.as_ref().map(|check| check.order.partition)
    }

    /// Whether a connection is used by the current check.
    pub(crate) fn uses(&self, connection: ConnectionId) -> bool {
        let parties = self.current.as_ref().map(|check| &check.parties);
        parties.is_some_and(|parties| parties.contains_key(&Party::Peer(connection)))
    }

    /// The upstream cluster of a connection that the current check has made.
    pub(crate) fn upstream_of(&self, connection: ConnectionId) -> Option<&str> {
        let check = self.current.as_ref()?;
        let is_reference = check.reference == Some(Party::Peer(connection));
        Some(&*check.order.upstream).filter(|name| is_reference && !name.is_empty())
    }

    /// The master asks to be told which copies are the same, in checks that it orders later.
    pub(crate) fn tell_master(&mut self) {
        self.tells_master = true;
    }

    /// The master has a partition compared with its replicas.
    pub(crate) fn order(&mut self, message: &CheckPartition<'_>) {
        let CheckPartition { partition, source, min_tid, max_tid } = message;
        self.queue.push_back(Order {
            partition: *partition,
            upstream: source.upstream.to_owned(),
            reference: source.address.clone(),
            min_tid: *min_tid,
            max_tid: *max_tid,
        });
    }

    /// Takes the next order, unless a partition is being checked. `is_locked_until` says whether a
    /// transaction up to a tid is locked.
    pub(crate) fn next(&mut self, is_locked_until: impl Fn(Tid) -> bool) -> Option<Order> {
        // Rows of locked transactions are not in their tables yet.
        let is_ready = |order: &mut Order| !is_locked_until(order.max_tid);
        if self.current.is_some() { None } else { self.queue.pop_front_if(is_ready) }
    }

    /// Begins with a partition. A connection that is not there is dialled after a pause.
    pub(crate) fn begin(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        pause: Duration,
        order: Order,
    ) -> Result<(), &'static str> {
        let Some((_, own)) = cluster.own_table() else { return Err("no table") };
        match cluster.state(order.partition) {
            None | Some(CellState::OutOfDate) => return Err("the cell is not up to date"),
            Some(_) => {}
        }
        let members = cluster.members();
        let mut parties = BTreeMap::from([(Party::Own, State::of(Some(own)))]);
        let mut reference = None;
        for node in cluster.others_with(order.partition) {
            let Some(address) = members.running_address(node) else { continue };
            let (connection, _) = links.connection_to(address, members, pause);
            parties.insert(Party::Peer(connection), State::of(Some(node)));
            if order.upstream.is_empty() && order.reference.as_ref() == Some(address) {
                reference = Some(Party::Peer(connection));
            }
        }
        match &order.reference {
            None => {}
            Some(address) if !order.upstream.is_empty() => {
                let (connection, _) = links.connection_to(address, members, pause);
                parties.insert(Party::Peer(connection), State::of(None));
                reference = Some(Party::Peer(connection));
            }
            Some(address) if *address == cluster.settings().address => reference = Some(Party::Own),
            Some(_) if reference.is_none() => return Err("the reference is not available"),
            Some(_) => {}
        }
        if parties.len() < 2 {
            return Err("there is no other replica");
        }
        let (partition, from, until) = (order.partition, order.min_tid, order.max_tid);
        debug!(%partition, %from, %until, "comparing a partition with its replicas");
        let range = Range::Transactions { from };
        self.current = Some(Check { order, reference, parties, range });
        self.sum_range(links);
        Ok(())
    }

    /// Has all parties sum up the current range.
    fn sum_range(&mut self, links: &mut Links) {
        self.range_number += 1;
        let number = self.range_number;
        let Some(check) = &mut self.current else { return };
        let (order, range) = (check.order.clone(), check.range);
        let mut peers = Vec::new();
        for (party, state) in &mut check.parties {
            (state.asked, state.sum) = (None, None);
            if let Party::Peer(connection) = party {
                peers.push(*connection);
            }
        }
        if check.parties.contains_key(&Party::Own) {
            links.read(
                move |database| order.sum(range, database),
                move |node, sum| {
                    let is_over = node.checking.own_sum_told(&mut node.links, number, sum);
                    node.check_went_on(is_over);
                },
            );
        }
        peers.into_iter().for_each(|connection| self.ask_sum(links, connection));
    }

    /// The database tells the sum of a range; whether the check is over.
    fn own_sum_told(&mut self, links: &mut Links, number: u64, sum: ReadResult<Sum>) -> bool {
        match sum {
            _ if self.range_number != number => false,
            Ok(sum) => self.summed_up(links, Party::Own, sum),
            Err(error) => {
                warn!(%error, "the database failed a comparison of replicas");
                self.end("the database failed")
            }
        }
    }

    /// Asks a storage for its sum, if it has accepted the connection.
    fn ask_sum(&mut self, links: &mut Links, connection: ConnectionId) {
        let Some(check) = &self.current else { return };
        if !links.is_ready(connection) {
            return;
        }
        let question = check.order.question(check.range);
        let asked = links.ask(connection, question, Asked::Check);
        let check = self.current.as_mut();
        if let Some(state) = check.and_then(|check| check.parties.get_mut(&Party::Peer(connection)))
        {
            state.asked = asked;
        }
    }

    /// A storage has accepted a connection of this node.
    pub(crate) fn source_accepted(&mut self, links: &mut Links, connection: ConnectionId) {
        let check = self.current.as_ref();
        let state = check.and_then(|check| check.parties.get(&Party::Peer(connection)));
        if state.is_some_and(|state| state.asked.is_none() && state.sum.is_none()) {
            self.ask_sum(links, connection);
        }
    }

    /// Handles a sum of another storage; others than the expected one are of an earlier range.
    /// Whether the check is over.
    pub(crate) fn sum_told(
        &mut self,
        links: &mut Links,
        (connection, id): (ConnectionId, u32),
        message: &Message<'_>,
    ) -> bool {
        let sum = match message {
            Message::AnswerCheckTIDRange(sum) => Sum::Transactions(TidSum {
                count: sum.count,
                checksum: sum.checksum,
                last: sum.max_tid,
            }),
            Message::AnswerCheckSerialRange(sum) => Sum::Records(SerialSum {
                count: sum.count,
                tid_checksum: sum.tid_checksum,
                last_tid: sum.max_tid,
                oid_checksum: sum.oid_checksum,
                last_oid: sum.max_oid,
            }),
            _ => return false,
        };
        let party = Party::Peer(connection);
        let check = self.current.as_ref();
        let state = check.and_then(|check| check.parties.get(&party));
        state.is_some_and(|state| state.asked == Some(id)) && self.summed_up(links, party, sum)
    }

    fn summed_up(&mut self, links: &mut Links, party: Party, sum: Sum) -> bool {
        let Some(check) = &mut self.current else { return false };
        if let Some(state) = check.parties.get_mut(&party) {
            (state.asked, state.sum) = (None, Some(sum));
        }
        self.compare_sums(links)
    }

    /// Compares the sums, when all are there, and goes on with the next range; whether the check is
    /// over.
    fn compare_sums(&mut self, links: &mut Links) -> bool {
        let Some(check) = &mut self.current else { return false };
        let sums: Option<Vec<Sum>> = check.parties.values().map(|state| state.sum).collect();
        let Some(sums) = sums else { return false };
        let expected = match check.reference {
            Some(reference) => check.parties.get(&reference).and_then(|state| state.sum),
            None => sums.first().copied().filter(|first| sums.iter().all(|sum| sum == first)),
        };
        let (right, wrong): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut check.parties)
            .into_iter()
            .partition(|(_, state)| state.sum == expected);
        check.parties = right;
        let (partition, min_tid) = (check.order.partition, check.order.min_tid);
        if !wrong.is_empty() {
            let nodes: Vec<_> = wrong.values().filter_map(|state| state.node).collect();
            warn!(%partition, ?nodes, has_reference = check.reference.is_some(),
                "replicas of a partition differ");
            links.count().differing_cells += nodes.len() as u64;
            links.notify_master(NotifyPartitionCorrupted { partition, nodes });
        }
        let next = match expected {
            Some(sum) if check.parties.len() > 1 => sum.next(min_tid),
            _ => return self.end("no two replicas are the same"),
        };
        if let Some(range) = next {
            check.range = range;
            self.sum_range(links);
            return false;
        }
        let max_tid = check.order.max_tid;
        info!(%partition, from = %min_tid, until = %max_tid, "replicas are the same");
        links.count().checked_partitions += 1;
        if self.tells_master {
            // Those that are not there, or differ, are not among them.
            let copies = u32::try_from(check.parties.len()).unwrap_or(u32::MAX);
            let checked = Checked { partition, min_tid, max_tid, copies };
            links.notify_master(checked.message());
        }
        self.current = None;
        true
    }

    /// A party does not take part any more; whether the check is over.
    pub(crate) fn lost(&mut self, links: &mut Links, connection: ConnectionId) -> bool {
        let Some(check) = &mut self.current else { return false };
        let party = Party::Peer(connection);
        if check.parties.remove(&party).is_none() {
            return false;
        }
        if check.reference == Some(party) || check.parties.len() < 2 {
            return self.end("a replica is not there any more");
        }
        self.compare_sums(links)
    }

    /// Cells of this node were taken away; whether the check is over.
    pub(crate) fn discard(&mut self, partitions: &[Partition]) -> bool {
        self.queue.retain(|order| !partitions.contains(&order.partition));
        let is_current = self.partition().is_some_and(|current| partitions.contains(&current));
        is_current && self.end("the cell was taken away")
    }

    /// Ends the check; whether there was one.
    fn end(&mut self, reason: &'static str) -> bool {
        let Some(check) = self.current.take() else { return false };
        warn!(partition = %check.order.partition, reason, "a comparison of replicas was ended");
        true
    }
}

impl State {
    fn of(node: Option<NodeId>) -> State {
        State { node, asked: None, sum: None }
    }
}
