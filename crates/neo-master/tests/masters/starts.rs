//! Starts: new clusters, recoveries, verifications.

use zodium_neo::messages::*;
use zodium_neo::{ClusterState, Map, Message, NodeType};
use zodium_neo_master::Settings;
use zodium_types::Tid;

use crate::support::*;

const EMPTY: AnswerRecovery = AnswerRecovery { table: None, backup_tid: None, truncate_tid: None };

#[test]
fn a_new_cluster_starts_when_enough_storages_are_there() {
    let mut bench = Bench::new(Settings { autostart: Some(2), ..settings(101) });
    let one = bench.storage(1);
    bench.answer(one, "AskRecovery", EMPTY);
    assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
    let other = bench.storage(2);
    // One that has not said whether it has a table keeps the cluster from being created.
    assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
    bench.answer(other, "AskRecovery", EMPTY);
    assert_eq!(bench.master.status().state, Some(ClusterState::Verifying));
    let rows = bench.take_with(one, "SendPartitionTable", |message| match message {
        Message::SendPartitionTable(table) => table.rows,
        _ => unreachable!(),
    });
    let nodes: Vec<_> = rows.iter().map(|row| row[0].node).collect();
    assert_eq!(nodes, [storage(1), storage(2)]);
}

#[test]
fn an_operator_starts_a_new_cluster_and_ends_it() {
    let mut bench = Bench::new(settings(101));
    let admin = bench.node(NodeType::Admin, None, Some(address(301)));
    let start = SetClusterState { state: ClusterState::Verifying };
    bench.tell(admin, 1, start.clone());
    let one = bench.storage(1);
    // It is refused until the storage has said what it has.
    bench.tell(admin, 2, start.clone());
    assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
    bench.answer(one, "AskRecovery", EMPTY);
    bench.tell(admin, 3, start);
    assert_eq!(bench.master.status().state, Some(ClusterState::Verifying));
    bench.tell(admin, 4, SetClusterState { state: ClusterState::Stopping });
    assert!(bench.has_ended && bench.closed.contains(&one));
}

#[test]
fn what_one_storage_has_locked_all_commit() {
    let mut bench = Bench::new(Settings { replicas: 1, ..settings(101) });
    let storages = bench.verifying(2);
    let (locked, dropped, done) = (Tid(2000), Tid(2002), Tid(2004));
    let told = |entries: &[(Tid, Option<Tid>)]| AnswerLockedTransactions {
        transactions: Map(entries.to_vec()),
    };
    let first = told(&[(locked, Some(Tid(2010))), (dropped, None), (done, None)]);
    bench.answer(storages[0], "AskLockedTransactions", first);
    let second = told(&[(locked, None), (dropped, None)]);
    bench.answer(storages[1], "AskLockedTransactions", second);
    // The second storage may have committed what only the first one has left.
    bench.answer(storages[1], "AskFinalTID", AnswerFinalTID { tid: Some(Tid(2020)) });
    let validated = |bench: &mut Bench, place: usize| {
        bench.take_with(storages[place], "ValidateTransaction", |message| match message {
            Message::ValidateTransaction(order) => (order.ttid, order.tid),
            _ => unreachable!(),
        })
    };
    assert_eq!(validated(&mut bench, 0), (locked, Tid(2010)));
    assert_eq!(validated(&mut bench, 0), (done, Tid(2020)));
    assert_eq!(validated(&mut bench, 1), (locked, Tid(2010)));
    // All have the metadata: nothing is asked before they have committed.
    assert!(!bench.names(storages[0]).contains(&"AskLastIDs"));
    assert!(!bench.names(storages[1]).contains(&"ValidateTransaction"));
    bench.serve(&storages);
    let client = bench.client();
    assert!(bench.begin(client) > Tid(2020));
}

#[test]
fn a_database_of_a_backup_cluster_is_not_run() {
    let mut bench = Bench::new(settings(101));
    let one = bench.storage(1);
    let answer = AnswerRecovery {
        table: Some(zodium_neo::TableId(7)),
        backup_tid: Some(Tid(5)),
        truncate_tid: None,
    };
    bench.answer(one, "AskRecovery", answer);
    let cell = Cell { node: storage(1), state: zodium_neo::CellState::UpToDate };
    let table =
        AnswerPartitionTable { table: zodium_neo::TableId(7), replicas: 0, rows: vec![vec![cell]] };
    bench.answer(one, "AskPartitionTable", table);
    assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
}

#[test]
fn a_truncation_waits_for_all_storages() {
    let (mut bench, storages) = Bench::running(2);
    let admin = bench.node(NodeType::Admin, None, Some(address(301)));
    bench.tell(admin, 1, Truncate { tid: Tid(500) });
    bench.take(storages[0], "Truncate");
    assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
    let answer = AnswerRecovery {
        table: Some(zodium_neo::TableId(7)),
        backup_tid: None,
        truncate_tid: Some(Tid(500)),
    };
    bench.answer(storages[0], "AskRecovery", answer.clone());
    let row =
        [1, 2].map(|number| Cell { node: storage(number), state: zodium_neo::CellState::UpToDate });
    let rows = vec![row.to_vec(); 2];
    let table = AnswerPartitionTable { table: zodium_neo::TableId(7), replicas: 1, rows };
    bench.answer(storages[0], "AskPartitionTable", table);
    assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
    bench.answer(storages[1], "AskRecovery", answer);
    assert_eq!(bench.master.status().state, Some(ClusterState::Verifying));
}

/// A new storage comes to a master that knows no table yet: the id that it gets.
fn newcomer(bench: &mut Bench, port: u16) -> (zodium_neo::ConnectionId, zodium_neo::NodeId) {
    let connection = bench.node(NodeType::Storage, None, Some(address(port)));
    let given = bench.take_with(connection, "AcceptIdentification", |message| match message {
        Message::AcceptIdentification(accepted) => accepted.your_id.unwrap(),
        _ => unreachable!(),
    });
    (connection, given)
}

#[test]
fn a_new_storage_that_comes_first_does_not_take_the_place_of_an_old_one() {
    let mut bench = Bench::new(Settings { replicas: 1, ..settings(101) });
    let (new, given) = newcomer(&mut bench, 250);
    assert_eq!(given, storage(1));
    bench.answer(new, "AskRecovery", EMPTY);
    let second = bench.storage(2);
    let answer = AnswerRecovery { table: Some(zodium_neo::TableId(7)), ..EMPTY };
    bench.answer(second, "AskRecovery", answer.clone());
    let row = [1, 2].map(|one| Cell { node: storage(one), state: zodium_neo::CellState::UpToDate });
    let table = AnswerPartitionTable {
        table: zodium_neo::TableId(7),
        replicas: 1,
        rows: vec![row.to_vec(); 2],
    };
    bench.answer(second, "AskPartitionTable", table);
    assert!(bench.closed.contains(&new) && bench.names(new).contains(&"Error"));
    // Nor when it comes again, now that the table is known.
    let again = bench.storage(1);
    bench.answer(again, "AskRecovery", EMPTY);
    assert!(bench.closed.contains(&again));
    assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
    let (third, given) = newcomer(&mut bench, 250);
    assert_eq!(given, storage(3));
    bench.answer(third, "AskRecovery", EMPTY);
    let first = bench.storage(1);
    bench.answer(first, "AskRecovery", answer);
    assert_eq!(bench.master.status().state, Some(ClusterState::Verifying));
    assert!(!bench.closed.contains(&first) && !bench.closed.contains(&third));
}

#[test]
fn a_new_storage_makes_way_for_the_only_old_one() {
    let mut bench = Bench::new(settings(101));
    let (new, given) = newcomer(&mut bench, 250);
    assert_eq!(given, storage(1));
    // Whether it has a partition table is not known yet.
    let early = bench.storage(1);
    assert!(bench.closed.contains(&early) && !bench.closed.contains(&new));
    bench.answer(new, "AskRecovery", EMPTY);
    let old = bench.storage(1);
    assert!(bench.closed.contains(&new) && bench.names(new).contains(&"Error"));
    let table = zodium_neo::TableId(7);
    bench.answer(old, "AskRecovery", AnswerRecovery { table: Some(table), ..EMPTY });
    let cell = Cell { node: storage(1), state: zodium_neo::CellState::UpToDate };
    let answer = AnswerPartitionTable { table, replicas: 0, rows: vec![vec![cell]; 2] };
    bench.answer(old, "AskPartitionTable", answer);
    assert_eq!(bench.master.status().state, Some(ClusterState::Verifying));
    // One that has asked for its id keeps it.
    let mut bench = Bench::new(settings(101));
    let first = bench.storage(1);
    bench.answer(first, "AskRecovery", EMPTY);
    let second = bench.storage(1);
    assert!(bench.closed.contains(&second) && !bench.closed.contains(&first));
}

#[test]
fn a_creation_that_not_all_storages_have_heard_of_goes_on() {
    // The second one is that of a start that was cut, too.
    for table in [1, 10_001].map(zodium_neo::TableId) {
        let mut bench = Bench::new(settings(101));
        let storages = [bench.storage(1), bench.storage(2)];
        bench.answer(storages[0], "AskRecovery", EMPTY);
        let answer = AnswerRecovery { table: Some(table), ..EMPTY };
        bench.answer(storages[1], "AskRecovery", answer);
        let row = |one| vec![Cell { node: storage(one), state: zodium_neo::CellState::UpToDate }];
        let answer = AnswerPartitionTable { table, replicas: 0, rows: vec![row(1), row(2)] };
        bench.answer(storages[1], "AskPartitionTable", answer);
        assert_eq!(bench.master.status().state, Some(ClusterState::Verifying));
    }
}

#[test]
fn a_storage_that_leaves_a_cluster_before_its_first_run_keeps_its_cells() {
    let shape = Settings { autostart: Some(2), replicas: 1, ..settings(101) };
    let mut bench = Bench::new(shape);
    let storages = [bench.storage(1), bench.storage(2)];
    storages.iter().for_each(|one| bench.answer(*one, "AskRecovery", EMPTY));
    assert_eq!(bench.master.status().state, Some(ClusterState::Verifying));
    // It may have no table yet.
    bench.lose(storages[1]);
    assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
    assert!(!bench.names(storages[0]).contains(&"NotifyPartitionChanges"));
}

#[test]
fn a_cluster_that_runs_has_another_table_than_one_that_was_created() {
    let mut bench = Bench::new(Settings { autostart: Some(1), ..settings(101) });
    let one = bench.storage(1);
    bench.answer(one, "AskRecovery", EMPTY);
    let transactions = zodium_neo::Map::default();
    let answer = AnswerLockedTransactions { transactions };
    bench.answer(one, "AskLockedTransactions", answer);
    let answer = AnswerLastIDs { last_tid: None, last_oid: None, first_tid: Tid::MAX };
    bench.answer(one, "AskLastIDs", answer);
    bench.answer(one, "AskPackOrders", AnswerPackOrders { orders: Vec::new() });
    let told = bench.take_with(one, "NotifyPartitionChanges", |message| match message {
        Message::NotifyPartitionChanges(changes) => changes.table,
        _ => unreachable!(),
    });
    assert_eq!(told, zodium_neo::TableId(2));
}

#[test]
fn the_id_of_a_new_storage_that_leaves_before_the_start_is_free() {
    let mut bench = Bench::new(settings(101));
    let (new, given) = newcomer(&mut bench, 250);
    bench.answer(new, "AskRecovery", EMPTY);
    bench.lose(new);
    assert_eq!(newcomer(&mut bench, 251).1, given);
}

#[test]
fn a_cluster_that_another_master_ran_meanwhile_waits_for_all_storages() {
    // With a table that is so many versions after the last one that this master has told.
    let start_again_with = |later: i64, other: zodium_neo::CellState| {
        let (mut bench, storages) = Bench::running(2);
        bench.lose(storages[1]);
        let last =
            bench.take_with(storages[0], "NotifyPartitionChanges", |message| match message {
                Message::NotifyPartitionChanges(changes) => changes.table,
                _ => unreachable!(),
            });
        // Otherwise only an operator could start the cluster without the second one.
        bench.acknowledge(storages[0]);
        bench.lose(storages[0]);
        assert_eq!(bench.master.status().state, Some(ClusterState::Recovering));
        let back = bench.storage(1);
        let table = zodium_neo::TableId(last.0.checked_add_signed(later).unwrap());
        let answer = AnswerRecovery { table: Some(table), backup_tid: None, truncate_tid: None };
        bench.answer(back, "AskRecovery", answer);
        let cell = |number, state| Cell { node: storage(number), state };
        let row = vec![cell(1, zodium_neo::CellState::UpToDate), cell(2, other)];
        let answer = AnswerPartitionTable { table, replicas: 1, rows: vec![row; 2] };
        bench.answer(back, "AskPartitionTable", answer);
        bench.master.status().state
    };
    let (up_to_date, outdated) =
        (zodium_neo::CellState::UpToDate, zodium_neo::CellState::OutOfDate);
    assert_eq!(start_again_with(0, outdated), Some(ClusterState::Verifying));
    assert_eq!(start_again_with(0, up_to_date), Some(ClusterState::Verifying));
    assert_eq!(start_again_with(-1, up_to_date), Some(ClusterState::Recovering));
    assert_eq!(start_again_with(1, up_to_date), Some(ClusterState::Recovering));
}
