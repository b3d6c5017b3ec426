//! Tables as storages come and go.

use std::collections::BTreeMap;

use zodium_neo::NodeType;

use super::*;

fn storage(number: u32) -> NodeId {
    NodeId::of(NodeType::Storage, number).unwrap()
}

/// A new table of storages from 1 on.
fn made(partitions: u32, replicas: u32, storages: u32) -> Table {
    let mut table = Table::new(partitions, replicas);
    for number in 1..=storages {
        table.add_member(storage(number));
    }
    table.tweak(&BTreeSet::new(), &Devices::new()).unwrap();
    table.next_id();
    table
}

fn shown(table: &Table) -> Vec<String> {
    let cell = |cell: &Cell| format!("{}{}", &cell.state.name()[..1], cell.node.number());
    let row = |row: &Vec<Cell>| row.iter().map(cell).collect::<Vec<_>>().join(" ");
    table.rows.iter().map(row).collect()
}

/// The cells of each storage but those that feed.
fn counts(table: &Table) -> BTreeMap<NodeId, usize> {
    let mut counts: BTreeMap<_, _> = table.members.iter().map(|node| (*node, 0)).collect();
    for cell in table.rows.iter().flatten().filter(|cell| cell.state != CellState::Feeding) {
        *counts.entry(cell.node).or_default() += 1;
    }
    counts
}

/// All storages replicate what they have to.
fn replicate(table: &mut Table) {
    let outdated: Vec<_> = (0..)
        .map(Partition)
        .zip(&table.rows)
        .flat_map(|(partition, row)| row.iter().map(move |cell| (partition, cell.clone())))
        .filter(|(_, cell)| cell.state == CellState::OutOfDate)
        .collect();
    for (partition, cell) in outdated {
        table.known.extend(table.id.map(|id| (cell.node, id)));
        table.set_updatable(cell.node, &[partition]);
        table.set_up_to_date(partition, cell.node).unwrap();
    }
}

#[test]
fn a_new_table_is_dealt_to_all_storages() {
    assert_eq!(shown(&made(4, 0, 2)), ["U1", "U2", "U1", "U2"]);
    assert_eq!(shown(&made(3, 1, 3)), ["U1 U2", "U1 U3", "U2 U3"]);
    // Fewer storages than copies.
    assert_eq!(shown(&made(2, 3, 2)), ["U1 U2", "U1 U2"]);
}

#[test]
fn tables_stay_readable_and_get_balanced_when_storages_come() {
    for (partitions, replicas) in [(1, 0), (5, 1), (12, 0), (12, 2), (100, 1)] {
        let mut table = made(partitions, replicas, 1);
        for number in 2..8 {
            table.add_member(storage(number));
            table.tweak(&BTreeSet::new(), &Devices::new()).unwrap();
            assert!(table.is_operational(|_| true));
            let again = table.tweak(&BTreeSet::new(), &Devices::new()).unwrap();
            assert_eq!(again, [], "{partitions} {replicas} {number}: {:?}", shown(&table));
            replicate(&mut table);
            assert!(table.rows.iter().flatten().all(|cell| cell.state == CellState::UpToDate));
            let counts = counts(&table);
            let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
            assert!(most - least <= 1, "{counts:?}");
            let copies = (replicas + 1).min(number) as usize;
            assert!(table.rows.iter().all(|row| row.len() == copies));
        }
    }
}

#[test]
fn few_cells_move_when_a_storage_comes() {
    let mut table = made(12, 0, 3);
    table.add_member(storage(4));
    let changes = table.tweak(&BTreeSet::new(), &Devices::new()).unwrap();
    let is_new = |change: &&CellChange| change.state == CellState::OutOfDate;
    // A dealt table of 4 has 3 cells of 1 node each of a dealt table of 3 in place.
    assert!(changes.iter().filter(is_new).count() <= 9, "{changes:?}");
}

#[test]
fn excluded_storages_keep_their_cells_while_others_get_copies() {
    let mut table = made(4, 0, 2);
    let excluded = BTreeSet::from([storage(2)]);
    table.tweak(&excluded, &Devices::new()).unwrap();
    assert_eq!(shown(&table), ["U1", "U2 O1", "U1", "U2 O1"]);
    assert_eq!(table.removal_of(storage(2)), Err(Partition(1)));
    replicate(&mut table);
    table.remove(storage(2)).unwrap();
    assert_eq!(shown(&table), ["U1", "U1", "U1", "U1"]);
    assert!(!table.has_member(storage(2)));
    assert!(table.tweak(&BTreeSet::from([storage(1)]), &Devices::new()).is_none());
}

#[test]
fn copies_are_on_devices_that_do_not_fail_together() {
    let place = |room: u8, device: u8| vec![vec![room], vec![device]];
    // The two of one room would be neighbours.
    let devices = Devices::from([
        (storage(1), place(1, 1)),
        (storage(2), place(1, 2)),
        (storage(3), place(2, 3)),
        (storage(4), place(2, 4)),
    ]);
    let mut table = Table::new(12, 1);
    for number in 1..=4 {
        table.add_member(storage(number));
    }
    table.tweak(&BTreeSet::new(), &devices).unwrap();
    for row in table.rows() {
        assert_ne!(devices[&row[0].node][0], devices[&row[1].node][0], "{:?}", shown(&table));
    }
    table.next_id();
    assert_eq!(table.tweak(&BTreeSet::new(), &devices), Some(Vec::new()));
}

#[test]
fn cells_of_storages_that_end_go_out_of_date_but_the_last_ones() {
    let mut table = made(2, 1, 2);
    let changes = table.outdate(Some(storage(2)), |node| node == storage(1));
    assert_eq!((changes.len(), shown(&table)), (2, vec!["U1 O2".into(), "U1 O2".into()]));
    // The last one keeps its cells: the cluster starts again when it comes back.
    assert_eq!(table.outdate(Some(storage(1)), |_| false), []);
    assert!(!table.is_operational(|_| false));
    assert!(table.operational_nodes(|node| node == storage(2)).is_empty());
    assert_eq!(table.operational_nodes(|_| true), BTreeSet::from([storage(1)]));
}

#[test]
fn a_replicated_cell_takes_the_place_of_the_one_that_feeds_it() {
    let mut table = made(2, 0, 1);
    table.add_member(storage(2));
    let before = table.id().unwrap();
    table.tweak(&BTreeSet::new(), &Devices::new()).unwrap();
    assert_eq!(shown(&table), ["U1", "F1 O2"]);
    // Too early: it does not get all new transactions yet.
    assert_eq!(table.set_up_to_date(Partition(1), storage(2)), Some(Vec::new()));
    // Nor does it when it has asked for a cell that it had earlier.
    table.set_updatable(storage(2), &[Partition(1)]);
    assert_eq!(table.set_up_to_date(Partition(1), storage(2)), Some(Vec::new()));
    table.known(storage(2), before);
    table.set_updatable(storage(2), &[Partition(1)]);
    assert_eq!(table.set_up_to_date(Partition(1), storage(2)).unwrap().len(), 2);
    assert_eq!(shown(&table), ["U1", "U2"]);
    assert_eq!(table.set_up_to_date(Partition(0), storage(2)), None);
    assert_eq!(table.set_up_to_date(Partition(9), storage(2)), None);
}

#[test]
fn a_cell_that_feeds_stays_until_its_storage_knows_the_table() {
    let cell = |number, state| ToldCell { node: storage(number), state };
    let row = vec![cell(1, CellState::Feeding), cell(2, CellState::OutOfDate)];
    let told = AnswerPartitionTable { table: TableId(3), replicas: 0, rows: vec![row] };
    let mut table = Table::load(&told).unwrap();
    table.set_updatable(storage(2), &[Partition(0)]);
    assert_eq!(table.set_up_to_date(Partition(0), storage(2)).unwrap().len(), 1);
    // A start with the first storage alone would know of no commit on the second one.
    assert_eq!(shown(&table), ["F1 U2"]);
    let id = table.next_id();
    assert_eq!(table.drop_all_fed(), []);
    table.known(storage(1), id);
    assert_eq!(table.drop_all_fed().len(), 1);
    assert_eq!(shown(&table), ["U2"]);
}

#[test]
fn a_cell_that_feeds_stays_when_the_new_one_goes() {
    let mut table = made(2, 0, 1);
    table.add_member(storage(2));
    table.tweak(&BTreeSet::new(), &Devices::new()).unwrap();
    table.remove(storage(2)).unwrap();
    assert_eq!(shown(&table), ["U1", "U1"]);
}

#[test]
fn a_table_that_contradicts_itself_is_not_loaded() {
    let cell = ToldCell { node: storage(1), state: CellState::UpToDate };
    let load = |rows| Table::load(&AnswerPartitionTable { table: TableId(3), replicas: 1, rows });
    assert!(load(vec![vec![cell, cell]]).unwrap_err().contains("two cells"));
    assert!(load(Vec::new()).unwrap_err().contains("without partitions"));
    let table = load(vec![vec![cell], Vec::new()]).unwrap();
    assert!(!table.is_filled() && table.has_member(storage(1)));
    assert_eq!(table.message().table, Some(TableId(3)));
}
