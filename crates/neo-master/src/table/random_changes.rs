//! Random tables and random changes: nothing readable is lost, and no table follows that could be
//! started beside an earlier one.

use proptest::collection::vec;
use proptest::prelude::*;
use zodium_neo::NodeType;

use super::*;

const STORAGES: u32 = 5;

fn storage(number: u32) -> NodeId {
    NodeId::of(NodeType::Storage, number + 1).unwrap()
}

fn storages() -> impl Iterator<Item = NodeId> {
    (0..STORAGES).map(storage)
}

fn state() -> impl Strategy<Value = Option<CellState>> {
    prop_oneof![
        3 => Just(None),
        3 => Just(Some(CellState::UpToDate)),
        2 => Just(Some(CellState::OutOfDate)),
        2 => Just(Some(CellState::Feeding)),
        1 => Just(Some(CellState::Corrupted)),
    ]
}

/// A table with some cells of each partition.
fn table() -> impl Strategy<Value = Table> {
    let rows = vec(vec(state(), STORAGES as usize), 1..7);
    (rows, 0..4_u32).prop_map(|(rows, replicas)| {
        let row = |states: Vec<Option<CellState>>| -> Row {
            let cells = storages().zip(states);
            cells.filter_map(|(node, state)| Some(ToldCell { node, state: state? })).collect()
        };
        let rows = rows.into_iter().map(row).collect();
        let mut table =
            Table::load(&AnswerPartitionTable { table: TableId(3), replicas, rows }).unwrap();
        table.members.extend(storages());
        table
    })
}

fn told(table: &Table) -> zodium_neo::PartitionTable {
    let id = table.id().unwrap();
    zodium_neo::PartitionTable::new(id, table.replicas(), table.told_rows()).unwrap()
}

/// What a tweak must keep of a row; `is_own` are the storages that are not excluded.
fn check_row(before: &[Cell], after: &[Cell], copies: usize, is_own: impl Fn(&&Cell) -> bool) {
    let foreign =
        |row: &[Cell]| -> Vec<Cell> { row.iter().filter(|cell| !is_own(cell)).cloned().collect() };
    assert_eq!(foreign(before), foreign(after), "excluded storages keep their cells");
    let own: Vec<_> = after.iter().filter(&is_own).collect();
    let feeding = own.iter().filter(|cell| cell.state == CellState::Feeding).count();
    assert_eq!(own.len() - feeding, copies, "{before:?} {after:?}");
    let readable = own.iter().filter(|cell| cell.is_readable()).count();
    let was_readable = before.iter().filter(|cell| is_own(cell) && cell.is_readable()).count();
    // Others that can be read stay until there are enough again, and no longer.
    assert!(readable >= was_readable.min(copies), "{before:?} {after:?}");
    assert!(feeding == 0 || readable <= copies, "{before:?} {after:?}");
}

proptest! {
    #[test]
    fn a_tweak_keeps_what_can_be_read_until_there_are_enough_copies(
        table in table(),
        excluded in 0..(1_u32 << STORAGES) - 1,
    ) {
        let is_excluded = |node: NodeId| excluded & (1 << (node.number() - 1)) != 0;
        let excluded: BTreeSet<_> = storages().filter(|node| is_excluded(*node)).collect();
        let mut after = table.clone();
        let changes = after.tweak(&excluded, &Devices::new()).unwrap();
        let own = STORAGES as usize - excluded.len();
        let copies = own.min(table.replicas() as usize + 1);
        for (before, after) in table.rows().iter().zip(after.rows()) {
            check_row(before, after, copies, |cell| !excluded.contains(&cell.node));
        }
        let counts = storages().filter(|node| !excluded.contains(node)).map(|node| {
            let cells = after.rows().iter().flatten().filter(|cell| cell.node == node);
            cells.filter(|cell| cell.state != CellState::Feeding).count()
        });
        let counts: Vec<_> = counts.collect();
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
        prop_assert_eq!(after.clone().tweak(&excluded, &Devices::new()).unwrap(), []);
        // Nodes that apply the changes have the same table.
        let mut followed = told(&table);
        let id = after.next_id();
        let message = zodium_neo::messages::NotifyPartitionChanges {
            table: id,
            replicas: after.replicas(),
            changes,
        };
        followed.apply(&message).unwrap();
        for (partition, row) in (0..).map(Partition).zip(after.rows()) {
            let cells = row.iter().map(|cell| (cell.node, cell.state.name()));
            let cells: BTreeSet<_> = cells.collect();
            let told = followed.row(partition).iter();
            let told: BTreeSet<_> = told.map(|cell| (cell.node, cell.state.name())).collect();
            prop_assert_eq!(cells, told);
        }
    }

    #[test]
    fn a_start_with_an_earlier_table_needs_a_storage_that_knows_better(
        replicas in 0..2_u32,
        partitions in 1..4_u32,
        changes in vec(change(), 1..60),
    ) {
        let mut cluster = Cluster::new(partitions, replicas);
        for change in &changes {
            cluster.happen(change);
            cluster.agree();
        }
        cluster.come_to_rest();
    }
}

/// What may happen to a cluster.
#[derive(Clone, Debug)]
enum Change {
    Add(u32),
    /// A tweak without these storages.
    Tweak(u32),
    SetReplicas(u32),
    /// A storage has replicated a partition.
    Replicated(u32, u32),
    /// A storage says that it has the table.
    Know(u32),
    /// A storage is lost.
    Lose(u32),
    Return(u32),
    /// An operator stops a storage.
    Kill(u32),
    /// An operator removes a storage that is stopped.
    Drop(u32),
}

fn change() -> impl Strategy<Value = Change> {
    let one = 0..STORAGES;
    prop_oneof![
        2 => one.clone().prop_map(Change::Add),
        3 => (0..1_u32 << STORAGES).prop_map(Change::Tweak),
        1 => (0..2_u32).prop_map(Change::SetReplicas),
        8 => (0..4_u32, one.clone()).prop_map(|(row, node)| Change::Replicated(row, node)),
        2 => one.clone().prop_map(Change::Know),
        1 => one.clone().prop_map(Change::Lose),
        2 => one.clone().prop_map(Change::Return),
        1 => one.clone().prop_map(Change::Kill),
        2 => one.prop_map(Change::Drop),
    ]
}

/// A cluster, whose master does what storages and operators ask of it.
struct Cluster {
    table: Table,
    running: BTreeSet<NodeId>,
}

impl Cluster {
    fn new(partitions: u32, replicas: u32) -> Cluster {
        let mut table = Table::new(partitions, replicas);
        table.add_member(storage(0));
        table.tweak(&BTreeSet::new(), &Devices::new()).unwrap();
        table.next_id();
        Cluster { table, running: BTreeSet::from([storage(0)]) }
    }

    fn happen(&mut self, change: &Change) {
        match *change {
            Change::Add(number) => {
                if self.table.add_member(storage(number)) {
                    self.running.insert(storage(number));
                }
            }
            Change::Tweak(without) => self.tweak(without),
            Change::SetReplicas(replicas) => {
                self.table.set_replicas(replicas);
                self.table.next_id();
            }
            Change::Replicated(row, number) => self.replicated(Partition(row), storage(number)),
            Change::Know(number) => self.know(storage(number)),
            Change::Lose(number) => self.lose(storage(number)),
            Change::Return(number) if self.table.has_member(storage(number)) => {
                self.running.insert(storage(number));
            }
            Change::Return(_) => {}
            Change::Kill(number) => self.kill(storage(number)),
            Change::Drop(number) => self.remove(storage(number)),
        }
    }

    /// A change is told unless no storage could close earlier tables.
    fn try_table(&mut self, table: Table, is_changed: bool) -> bool {
        let is_taken = !is_changed || table.may_follow();
        if is_taken {
            self.table = table;
            self.told(is_changed);
        }
        is_taken
    }

    fn told(&mut self, is_changed: bool) {
        if is_changed {
            self.table.next_id();
        }
    }

    fn tweak(&mut self, without: u32) {
        let is_out = |node: &NodeId| without & (1 << (node.number() - 1)) != 0;
        let excluded = storages().filter(|node| is_out(node) || !self.running.contains(node));
        let mut table = self.table.clone();
        if let Some(changes) = table.tweak(&excluded.collect(), &Devices::new()) {
            self.try_table(table, !changes.is_empty());
        }
    }

    fn replicated(&mut self, partition: Partition, node: NodeId) {
        if !self.running.contains(&node) {
            return;
        }
        // It has the table, and others need not hear of that yet.
        self.table.known.extend(self.table.id().map(|id| (node, id)));
        self.table.set_updatable(node, &[partition]);
        let changes = self.table.set_up_to_date(partition, node);
        self.told(changes.is_some_and(|changes| !changes.is_empty()));
    }

    fn know(&mut self, node: NodeId) {
        if let Some(id) = self.table.id().filter(|_| self.running.contains(&node)) {
            self.table.known(node, id);
            let changes = self.table.drop_all_fed();
            self.told(!changes.is_empty());
        }
    }

    /// The cluster stops when a storage is lost without which it cannot go on: it comes back.
    fn lose(&mut self, node: NodeId) {
        let others: BTreeSet<_> = self.running.iter().copied().filter(|one| *one != node).collect();
        let is_running = |one: NodeId| others.contains(&one);
        if self.table.can_settle(is_running) && self.table.is_operational(is_running) {
            let changes = self.table.outdate(Some(node), is_running);
            self.running = others;
            self.told(!changes.is_empty());
        }
    }

    fn kill(&mut self, node: NodeId) {
        if !self.running.contains(&node) || self.table.removal_of(node).is_err() {
            return;
        }
        let mut table = self.table.clone();
        let changes = table.outdate(None, |one| one != node && self.running.contains(&one));
        if self.try_table(table, !changes.is_empty()) {
            self.running.remove(&node);
        }
    }

    fn remove(&mut self, node: NodeId) {
        let mut table = self.table.clone();
        if !self.running.contains(&node)
            && let Ok(changes) = table.remove(node)
        {
            self.try_table(table, !changes.is_empty());
        }
    }

    fn agree(&self) {
        let is_running = |node| self.running.contains(&node);
        assert!(self.table.is_operational(is_running), "{:?}", self.table);
        assert!(self.table.can_settle(is_running), "nothing can be committed: {:?}", self.table);
    }

    /// All storages say what they have, and replicate what they lack.
    fn come_to_rest(&mut self) {
        for _ in 0..2 {
            for node in self.running.clone() {
                (0..self.table.partitions()).for_each(|row| self.replicated(Partition(row), node));
            }
            // A cell may be dropped when the table is known, which is to be known again.
            for _ in 0..3 {
                self.running.clone().into_iter().for_each(|node| self.know(node));
            }
        }
        assert!(self.table.is_settled());
        let is_fed = |row: &Vec<Cell>| row.iter().all(Cell::is_readable);
        for row in self.table.rows().iter().filter(|row| is_fed(row)) {
            assert!(row.iter().all(|cell| cell.state == CellState::UpToDate), "{row:?}");
        }
    }
}
