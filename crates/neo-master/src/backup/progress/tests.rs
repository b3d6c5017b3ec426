//! The bookkeeping beside a model of storages, which fetch what they are told in any order.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use zodium_neo::{CellState, NodeType};

use super::*;

const PARTITIONS: u32 = 3;
const STORAGES: u32 = 3;
const FIRST: Tid = Tid(100);

fn storage(number: u32) -> NodeId {
    NodeId::of(NodeType::Storage, number + 1).unwrap()
}

fn upstream() -> Vec<Address> {
    vec![Address { host: "127.0.0.1".to_owned(), port: 1 }]
}

/// What may happen.
#[derive(Clone, Debug)]
enum Event {
    /// A transaction is committed upstream, in the partitions whose bits are set.
    Commit(u8),
    /// A storage carries out one of its orders.
    Fetch(usize),
    /// A storage ends, if others have all its cells.
    Leave(u32),
    /// It comes back, and fetches what it lacks from others.
    Return(u32),
    /// The connection upstream is lost, and made again.
    Reconnect,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..8_u8).prop_map(Event::Commit),
        6 => any::<usize>().prop_map(Event::Fetch),
        1 => (0..STORAGES).prop_map(Event::Leave),
        1 => (0..STORAGES).prop_map(Event::Return),
        1 => Just(Event::Reconnect),
    ]
}

/// A backup cluster, and the cluster that it follows.
struct Model {
    table: Table,
    progress: Progress,
    /// The transactions upstream, by partition.
    committed: Vec<BTreeSet<Tid>>,
    last: Tid,
    /// The transactions that each cell has.
    held: BTreeMap<(Partition, NodeId), BTreeSet<Tid>>,
    orders: Vec<Order>,
}

impl Model {
    fn new() -> Model {
        let mut table = Table::new(PARTITIONS, STORAGES - 1);
        for partition in (0..PARTITIONS).map(Partition) {
            (0..STORAGES).for_each(|node| table.set(partition, storage(node), CellState::UpToDate));
        }
        let mut progress = Progress::new(&table, |_| Tid::ZERO);
        let committed = vec![BTreeSet::from([FIRST]); PARTITIONS as usize];
        progress.begin(&table, FIRST);
        let (held, orders) = (BTreeMap::new(), Vec::new());
        let mut model = Model { table, progress, committed, last: FIRST, held, orders };
        model.order();
        model
    }

    fn order(&mut self) {
        for partition in (0..PARTITIONS).map(Partition) {
            let cells = self.table.row(partition).iter().filter(|cell| cell.is_readable());
            let ready: Vec<_> = cells.map(|cell| cell.node).collect();
            let upstream = upstream();
            let sources = Sources { ready: &ready, upstream: &upstream, last: self.last };
            self.orders.extend(self.progress.orders(partition, &sources));
        }
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Commit(bits) => {
                let (previous, tid) = (self.last, Tid(self.last.0 + 3));
                let is_touched = |one: Partition| bits & (1 << one.0) != 0;
                for partition in (0..PARTITIONS).map(Partition).filter(|one| is_touched(*one)) {
                    self.committed[partition.0 as usize].insert(tid);
                }
                self.progress.committed(&self.table, (previous, tid), is_touched);
                self.last = tid;
            }
            Event::Fetch(which) if !self.orders.is_empty() => {
                let order = self.orders.remove(which % self.orders.len());
                self.fetch(&order);
            }
            Event::Leave(number) => self.leave(storage(*number)),
            Event::Return(number) => self.come_back(storage(*number)),
            Event::Reconnect => {
                self.progress.forget_orders();
                self.progress.begin(&self.table, self.last);
            }
            Event::Fetch(_) => {}
        }
        self.order();
        self.agree();
    }

    fn fetch(&mut self, order: &Order) {
        let Order { node, partition, until, source } = order;
        let found = match source {
            Source::Upstream(_) => self.committed[partition.0 as usize].clone(),
            Source::Own(other) => self.held.get(&(*partition, *other)).cloned().unwrap_or_default(),
        };
        let held = self.held.entry((*partition, *node)).or_default();
        held.extend(found.range(..=*until));
        self.done(*partition, *node, *until);
    }

    fn done(&mut self, partition: Partition, node: NodeId, until: Tid) {
        self.progress.replicated(&self.table, (partition, node), until, self.last);
        self.table.set_up_to_date(partition, node);
    }

    fn leave(&mut self, node: NodeId) {
        let is_needed = |row: &[crate::table::Cell]| {
            !row.iter().any(|cell| cell.is_readable() && cell.node != node)
        };
        if self.table.rows().iter().any(|row| is_needed(row)) {
            return;
        }
        self.orders.retain(|order| order.node != node && order.source != Source::Own(node));
        (0..PARTITIONS).for_each(|one| self.table.set(Partition(one), node, CellState::OutOfDate));
        // Its database may be a new one.
        self.held.retain(|(_, other), _| *other != node);
    }

    fn come_back(&mut self, node: NodeId) {
        let until = self.progress.common(&self.table);
        for partition in (0..PARTITIONS).map(Partition) {
            let row = self.table.row(partition);
            if row.iter().any(|cell| cell.node == node && cell.is_readable()) {
                continue;
            }
            let source = row.iter().find(|cell| cell.is_readable()).unwrap().node;
            self.table.set_updatable(node, &[partition]);
            let order = Order { node, partition, until, source: Source::Own(source) };
            self.fetch(&order);
        }
    }

    /// A cell has everything up to where it is said to be complete.
    fn agree(&self) {
        for partition in (0..PARTITIONS).map(Partition) {
            for cell in self.table.row(partition).iter().filter(|cell| cell.is_readable()) {
                let row = &self.progress.partitions[partition.0 as usize];
                let complete = row.cells.get(&cell.node).map_or(Tid::ZERO, |cell| cell.complete);
                let held = self.held.get(&(partition, cell.node)).cloned().unwrap_or_default();
                let needed = self.committed[partition.0 as usize].range(..=complete);
                for tid in needed {
                    assert!(held.contains(tid), "{} lacks {tid} of {partition}", cell.node);
                }
            }
        }
        assert!(self.progress.common(&self.table) <= self.progress.complete(&self.table));
        assert!(self.progress.complete(&self.table) <= self.last);
    }
}

proptest! {
    #[test]
    fn cells_are_never_said_to_have_more_and_have_everything_in_the_end(
        events in vec(event(), 0..120),
    ) {
        let mut model = Model::new();
        for event in &events {
            model.happen(event);
        }
        while !model.orders.is_empty() {
            model.happen(&Event::Fetch(0));
        }
        prop_assert_eq!(model.progress.common(&model.table), model.last);
    }
}

#[test]
fn one_cell_fetches_from_upstream_and_the_others_from_it() {
    let mut model = Model::new();
    let is_upstream = |order: &Order| matches!(order.source, Source::Upstream(_));
    assert_eq!(model.orders.len(), 3);
    assert!(model.orders.iter().all(is_upstream));
    // Partitions are spread over storages.
    let nodes: BTreeSet<_> = model.orders.iter().map(|order| order.node).collect();
    assert_eq!(nodes.len(), 3);
    model.happen(&Event::Fetch(0));
    assert_eq!(model.orders.iter().filter(|order| is_upstream(order)).count(), 2);
    assert_eq!(model.orders.len(), 4);
}

#[test]
fn a_cell_that_was_told_is_not_told_again() {
    let mut model = Model::new();
    model.orders.clear();
    model.happen(&Event::Commit(0));
    assert_eq!(model.orders, []);
    model.happen(&Event::Commit(1));
    assert_eq!(model.orders.len(), 1);
}
