//! What a node of a backup cluster says of transactions that are not whole yet.

use zodium_neo::CellState::{OutOfDate, UpToDate};
use zodium_neo::messages::*;
use zodium_neo::{Map, Message, Partition, TableId};
use zodium_neo_storage::ConnectionId;
use zodium_types::{Oid, Tid};

use crate::support::{Bench, address, each_packet, storage};

const HERE: Partition = Partition(0);

/// A node with three transactions, whose database says that it is whole up to the first.
fn stored() -> (Bench, ConnectionId) {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate), (2, UpToDate)]]);
    let one = bench.client(1);
    for (number, oid) in [(0, 4), (1, 6), (2, 8)] {
        bench.store(one, 100 + 10 * number, oid, 0, b"data");
        bench.commit(one, 100 + 10 * number, 102 + 10 * number, &[oid]);
    }
    let set = bench.database.write(false, |database| database.set_backup_tid(Some(Tid(102))));
    set.unwrap();
    (bench, one)
}

#[test]
fn a_list_of_transactions_goes_on_behind_those_that_are_not_whole() {
    let (mut bench, one) = stored();
    bench.master_tells(StartOperation { backup: true });
    bench.names();
    bench.tell(one, 3, AskTIDs { first: 0, end: 2, partition: HERE });
    let said = bench.take();
    assert!(said[0].1.contains("tids: [Tid(66)]"), "{said:?}");
}

#[test]
fn a_cell_that_a_killed_node_had_is_fetched_from_where_it_was_whole() {
    let (mut bench, _) = stored();
    // The master tells the table before it tells that the cluster is a backup.
    let change = CellChange { partition: HERE, node: storage(1), state: OutOfDate };
    let (table, changes) = (TableId(2), vec![change]);
    bench.master_tells(NotifyPartitionChanges { table, replicas: 1, changes });
    let cells = bench.database.write(false, |database| database.cells(storage(1)));
    assert_eq!(cells.unwrap()[0].replicated, Some(Tid(102)));
}

/// A backup with three transactions, which was told of a later one; what it asks of upstream.
fn fetching() -> (Bench, ConnectionId, u32, AskFetchTransactions) {
    let (mut bench, _) = stored();
    let set = bench.database.write(false, |database| database.set_backup_tid(Some(Tid(122))));
    set.unwrap();
    bench.master_tells(StartOperation { backup: true });
    let sources = Map(vec![(HERE, Some(address(900)))]);
    bench.master_tells(Replicate { tid: Tid(150), upstream: "upstream", sources });
    bench.names();
    let source = bench.source();
    let mut asked = None;
    for (_, bytes) in bench.take_sent() {
        each_packet(&bytes, |packet| {
            if let Message::AskFetchTransactions(question) = packet.message {
                asked = Some((packet.id, question));
            }
        });
    }
    let (id, question) = asked.unwrap();
    (bench, source, id, question)
}

#[test]
fn a_backup_fetches_what_follows_its_last_transaction() {
    let (mut bench, source, id, question) = fetching();
    assert_eq!((question.min_tid, question.tids), (Tid(122), vec![Tid(122)]));
    let (next_tid, deleted, completed_pack) = (None, Vec::new(), None);
    bench.tell(source, id, AnswerFetchTransactions { next_tid, deleted, completed_pack });
    assert_eq!(bench.names(), ["AskFetchObjects"]);
}

#[test]
fn a_backup_takes_nothing_from_an_upstream_cluster_without_its_last_transaction() {
    let (mut bench, source, id, _) = fetching();
    let transaction = AddTransaction {
        tid: Tid(150),
        user: b"",
        description: b"",
        extension: b"",
        packed: false,
        ttid: Tid(150),
        oids: vec![Oid(4)],
        pack: None,
    };
    bench.tell(source, id, transaction);
    let (next_tid, deleted, completed_pack) = (None, vec![Tid(122)], None);
    bench.tell(source, id, AnswerFetchTransactions { next_tid, deleted, completed_pack });
    assert_eq!(bench.names(), ["NotifyPartitionCorrupted"]);
    let tids = bench.database.read(|database| database.tids(HERE, (Tid(0), Tid::MAX), 9));
    assert_eq!(tids.unwrap().unwrap(), [Tid(102), Tid(112), Tid(122)]);
}
