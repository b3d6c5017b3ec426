//! How far the cells of a backup cluster are, and what they have to fetch: pure bookkeeping.

use std::collections::{BTreeMap, VecDeque};

use zodium_neo::{Address, NodeId, Partition};
use zodium_types::Tid;

use crate::table::Table;

/// How far all cells are.
#[derive(Debug)]
pub(super) struct Progress {
    /// From partition 0.
    partitions: Vec<Row>,
    /// Orders are given: the last transaction upstream is known.
    is_current: bool,
}

/// The cells of a partition.
#[derive(Debug, Default)]
struct Row {
    cells: BTreeMap<NodeId, Cell>,
    /// Transactions upstream that not all readable cells have, ascending.
    open: VecDeque<Tid>,
    /// The cell that fetches from upstream.
    primary: Option<NodeId>,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    /// It has everything up to this transaction.
    complete: Tid,
    ordered: Option<Ordered>,
}

/// What a cell was told to fetch.
#[derive(Clone, Debug)]
struct Ordered {
    /// As its storage was told.
    told: Tid,
    /// It will have everything up to this transaction: nothing was committed in between.
    until: Tid,
    source: Source,
}

/// Where a cell fetches from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A storage of the upstream cluster.
    Upstream(Address),
    /// A storage of this cluster.
    Own(NodeId),
}

/// What a storage is to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) node: NodeId,
    pub(super) partition: Partition,
    pub(super) until: Tid,
    pub(super) source: Source,
}

/// What orders depend on, of a partition.
pub(super) struct Sources<'a> {
    /// Storages with a readable cell that are ready.
    pub(super) ready: &'a [NodeId],
    /// Storages upstream that have the partition; none while nothing is fetched from there.
    pub(super) upstream: &'a [Address],
    /// The last transaction upstream.
    pub(super) last: Tid,
}

/// The transaction before one, if there is one.
fn before(tid: Tid) -> Tid {
    Tid(tid.0.saturating_sub(1))
}

impl Cell {
    /// The transaction up to which it will have everything.
    fn expected(&self) -> Tid {
        self.ordered.as_ref().map_or(self.complete, |ordered| ordered.until.max(self.complete))
    }

    /// Forgets an order that is carried out, or whose source is gone.
    fn check_order(&mut self, is_source: impl Fn(&Source) -> bool) {
        let complete = self.complete;
        self.ordered.take_if(|ordered| ordered.until <= complete || !is_source(&ordered.source));
    }
}

impl Progress {
    /// Readable cells are as far as `complete` says of their storages.
    pub(super) fn new(table: &Table, complete: impl Fn(NodeId) -> Tid) -> Progress {
        let cell = |node| (node, Cell { complete: complete(node), ordered: None });
        let row = |row: &Vec<crate::table::Cell>| Row {
            cells: row.iter().filter(|one| one.is_readable()).map(|one| cell(one.node)).collect(),
            ..Row::default()
        };
        Progress { partitions: table.rows().iter().map(row).collect(), is_current: false }
    }

    /// Whether the last transaction upstream is known.
    pub(super) fn is_current(&self) -> bool {
        self.is_current
    }

    /// The upstream cluster is lost: what is open there is not known any more.
    pub(super) fn forget_orders(&mut self) {
        self.is_current = false;
        for row in &mut self.partitions {
            row.open.clear();
            row.primary = None;
            row.cells.values_mut().for_each(|cell| cell.ordered = None);
        }
    }

    /// The last transaction up to which each partition has a readable cell with everything.
    pub(super) fn complete(&self, table: &Table) -> Tid {
        self.least(table, |cells| cells.max())
    }

    /// The last transaction up to which each readable cell has everything.
    pub(super) fn common(&self, table: &Table) -> Tid {
        self.least(table, |cells| cells.min())
    }

    /// The same for one partition.
    pub(super) fn common_of(&self, table: &Table, partition: Partition) -> Tid {
        self.readable(table, partition).min().unwrap_or_default()
    }

    fn least(
        &self,
        table: &Table,
        of_row: impl Fn(&mut dyn Iterator<Item = Tid>) -> Option<Tid>,
    ) -> Tid {
        let partitions = (0..table.partitions()).map(Partition);
        let rows = partitions.map(|one| of_row(&mut self.readable(table, one)).unwrap_or_default());
        rows.min().unwrap_or_default()
    }

    fn readable<'a>(
        &'a self,
        table: &'a Table,
        partition: Partition,
    ) -> impl Iterator<Item = Tid> + 'a {
        let row = self.partitions.get(partition.0 as usize);
        let cells = table.row(partition).iter().filter(|cell| cell.is_readable());
        cells.map(move |cell| {
            row.and_then(|row| row.cells.get(&cell.node)).map_or(Tid::ZERO, |cell| cell.complete)
        })
    }

    /// The last transaction upstream: any partition may have something new up to it.
    pub(super) fn begin(&mut self, table: &Table, last: Tid) {
        self.is_current = true;
        for (partition, row) in (0..).map(Partition).zip(&mut self.partitions) {
            row.open.clear();
            let readable = table.row(partition).iter().filter(|cell| cell.is_readable());
            let mut cells = readable.map(|cell| row.cells.get(&cell.node));
            if cells.any(|cell| cell.is_none_or(|cell| cell.complete < last)) {
                row.open.push_back(last);
            }
        }
    }

    /// A transaction was committed upstream, in some partitions. Gives the cells that are complete
    /// without it.
    pub(super) fn committed(
        &mut self,
        table: &Table,
        (previous, tid): (Tid, Tid),
        is_touched: impl Fn(Partition) -> bool,
    ) -> Vec<(NodeId, Partition)> {
        let mut complete = Vec::new();
        for (partition, row) in (0..).map(Partition).zip(&mut self.partitions) {
            let needed = row.open.back().copied().unwrap_or(previous);
            let is_touched = is_touched(partition);
            for one in table.row(partition).iter().filter(|cell| cell.is_readable()) {
                let cell = row.cells.entry(one.node).or_default();
                if is_touched {
                    if cell.complete >= previous {
                        // It has all before.
                        cell.complete = before(tid);
                    }
                } else if cell.complete >= needed {
                    cell.complete = tid;
                    complete.push((one.node, partition));
                } else if let Some(ordered) = &mut cell.ordered
                    && ordered.until >= needed
                {
                    ordered.until = tid;
                }
            }
            if is_touched {
                row.open.push_back(tid);
            }
        }
        complete
    }

    /// A cell has everything of its partition up to a transaction. Gives the one up to which it
    /// lacks nothing, if that is later and the storage does not know.
    pub(super) fn replicated(
        &mut self,
        table: &Table,
        (partition, node): (Partition, NodeId),
        tid: Tid,
        last: Tid,
    ) -> Option<Tid> {
        let row = self.partitions.get_mut(partition.0 as usize)?;
        let mut complete = tid;
        if row.open.front().is_some_and(|first| tid >= *first) {
            // Nothing was committed in the partition until the next one that is open.
            let next = row.open.iter().find(|open| **open > tid);
            complete = next.map_or(last.max(tid), |next| before(*next));
        }
        let mut readable = table.row(partition).iter().filter(|cell| cell.is_readable());
        let is_readable = readable.any(|cell| cell.node == node);
        let cell = row.cells.entry(node).or_default();
        if is_readable {
            let ordered = cell.ordered.as_ref().filter(|ordered| ordered.told <= tid);
            complete = ordered.map_or(complete, |ordered| ordered.until.max(complete));
            // It may say late what it has fetched.
            cell.complete = cell.complete.max(complete);
        } else {
            // It begins anew.
            *cell = Cell { complete, ordered: None };
        }
        let is_caught_up = row.open.back().is_none_or(|open| *open <= tid) && complete > tid;
        let readable = table.row(partition).iter().filter(|cell| cell.is_readable());
        let all = readable.map(|cell| row.cells.get(&cell.node).map_or(Tid::ZERO, |c| c.complete));
        let all = all.min().unwrap_or_default();
        while row.open.front().is_some_and(|open| *open <= all) {
            row.open.pop_front();
        }
        is_caught_up.then_some(complete)
    }

    /// What the cells of a partition are to fetch now, which they were not told.
    pub(super) fn orders(&mut self, partition: Partition, sources: &Sources<'_>) -> Vec<Order> {
        let Some(row) = self.partitions.get_mut(partition.0 as usize) else { return Vec::new() };
        let complete =
            |row: &Row, node: &NodeId| row.cells.get(node).map_or(Tid::ZERO, |c| c.complete);
        row.primary = row.primary.filter(|node| sources.ready.contains(node));
        // Partitions whose cells are equally far are spread over storages.
        let turn = |place: usize| (place + partition.0 as usize) % sources.ready.len();
        let candidates = sources.ready.iter().enumerate();
        let best = candidates.max_by_key(|(place, node)| (complete(row, node), turn(*place)));
        let Some(primary) = row.primary.or(best.map(|(_, node)| *node)) else { return Vec::new() };
        row.primary = Some(primary);
        let mut orders = Vec::new();
        let mut order = |cell: &mut Cell, node, until, source: Source| {
            cell.ordered = Some(Ordered { told: until, until, source: source.clone() });
            orders.push(Order { node, partition, until, source });
        };
        let cell = row.cells.entry(primary).or_default();
        let is_upstream = |source: &Source| match source {
            Source::Upstream(address) => sources.upstream.contains(address),
            Source::Own(_) => false,
        };
        cell.check_order(is_upstream);
        if row.open.is_empty() && cell.complete < sources.last && !sources.upstream.is_empty() {
            // The cells that had what was committed are gone.
            row.open.push_back(sources.last);
        }
        if row.open.back().is_some_and(|open| cell.expected() < *open)
            && let Some(address) = sources.upstream.first()
        {
            order(cell, primary, sources.last, Source::Upstream(address.clone()));
        }
        let wanted = cell.complete;
        for node in sources.ready.iter().filter(|node| **node != primary) {
            let cell = row.cells.entry(*node).or_default();
            cell.check_order(|source| *source == Source::Own(primary));
            if cell.expected() < wanted {
                order(cell, *node, wanted, Source::Own(primary));
            }
        }
        orders
    }
}

#[cfg(test)]
mod tests;
