//! Undo, packs, truncation, dropped partitions.

use zodium_neo::CellState::{Discarded, Feeding, OutOfDate, UpToDate};
use zodium_neo::messages::*;
use zodium_neo::{Checksum, NodeType, Partition, TableId};
use zodium_neo_storage::{ConnectionId, Loaded};
use zodium_types::{Oid, Tid};

use crate::support::{Bench, each_packet, storage};

/// A node with five revisions of object 2 and one of object 4, at tids 11, 21, 31...
fn with_history() -> (Bench, ConnectionId) {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate)]]);
    let one = bench.client(1);
    for number in 1..=5 {
        let serial = if number == 1 { 0 } else { number * 10 - 9 };
        bench.store(one, number * 10, 2, serial, &[number as u8]);
        bench.commit(one, number * 10, number * 10 + 1, &[2]);
    }
    bench.store(one, 60, 4, 0, b"data");
    bench.commit(one, 60, 61, &[4]);
    bench.names();
    (bench, one)
}

#[test]
fn a_copy_asks_for_a_new_id_and_takes_its_cells_along() {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate)], vec![(2, UpToDate)]]);
    bench.node.ask_new_id();
    bench.node.closed(bench.master);
    bench.work();
    bench.master = bench.dialled.pop().unwrap().0;
    bench.node.connected(bench.master);
    bench.work();
    let request = texts(&mut bench).join(" ");
    assert!(request.contains("id: None, address: None"), "{request}");
    assert!(request.contains("Array([Int(0)])"), "{request}");
    let accepted = AcceptIdentification {
        node_type: NodeType::Master,
        id: zodium_neo::NodeId::of(NodeType::Master, 1),
        your_id: Some(storage(9)),
    };
    bench.tell(bench.master, 0, accepted);
    let cells = bench.database.write(true, |database| database.cells(storage(9))).unwrap();
    assert_eq!(cells.iter().map(|cell| cell.partition).collect::<Vec<_>>(), [Partition(0)]);
    let left = bench.database.write(true, |database| database.cells(storage(1))).unwrap();
    assert!(left.is_empty());
}

fn texts(bench: &mut Bench) -> Vec<String> {
    bench.take().into_iter().map(|(_, text)| text).collect()
}

#[test]
fn an_undo_learns_which_records_it_needs() {
    let (mut bench, one) = with_history();
    let mut ask = |end, undone| {
        let (ttid, end_tid, undone_tid) = (Tid(100), Tid(end), Tid(undone));
        let oids = vec![Oid(2), Oid(4)];
        bench.tell(one, 5, AskObjectUndoSerial { ttid, end_tid, undone_tid, oids });
        texts(&mut bench).join(" ")
    };
    let last = ask(100, 51);
    let expected = "current_serial: Tid(33), undo_serial: Some(Tid(29)), is_current: true";
    assert!(last.contains(expected) && !last.contains("Oid(4)"), "{last}");
    let first = ask(100, 11);
    assert!(first.contains("Tid(33), undo_serial: None, is_current: false"), "{first}");
    let earlier = ask(32, 21);
    assert!(earlier.contains("Tid(1f), undo_serial: Some(Tid(b)), is_current: false"), "{earlier}");
    assert!(ask(12, 21).contains("OidNotFound"));
}

/// Commits an order to pack, signs it, and lets the master tell it.
fn pack(bench: &mut Bench, one: ConnectionId, oids: Option<Vec<Oid>>) {
    let (ttid, tid) = (Tid(70), Tid(71));
    let pack = Some(PackRequest { oids: oids.clone(), tid: Tid(51) });
    let (user, description, extension) = (&b""[..], &b"pack"[..], &b""[..]);
    let oids_of_transaction = Vec::new();
    let vote =
        AskStoreTransaction { ttid, user, description, extension, oids: oids_of_transaction, pack };
    bench.tell(one, 2, vote);
    bench.master_tells(AskLockInformation { ttid, tid, pack_approved: true });
    bench.master_tells(NotifyUnlockInformation { ttid });
    bench.names();
    bench.master_tells(AskPackOrders { id: Tid(0) });
    let mut orders = Vec::new();
    for (_, bytes) in bench.take_sent() {
        each_packet(&bytes, |packet| {
            if let zodium_neo::Message::AnswerPackOrders(answer) = packet.message {
                orders = answer.orders;
            }
        });
    }
    assert_eq!((orders.len(), orders[0].approved), (1, Some(true)));
    bench.master_tells(NotifyPackSigned { approved: vec![tid], rejected: Vec::new() });
    let mut asked = None;
    for (_, bytes) in bench.take_sent() {
        each_packet(&bytes, |packet| {
            if packet.message.name() == "AskPackOrders" {
                asked = Some(packet.id);
            }
        });
    }
    bench.tell(bench.master, asked.unwrap(), AnswerPackOrders { orders });
    let said = texts(bench);
    assert_eq!(said, ["NotifyPackCompleted(NotifyPackCompleted { id: Tid(47) })"]);
}

fn revisions(bench: &mut Bench, one: ConnectionId) -> usize {
    bench.tell(one, 5, AskObjectHistory { oid: Oid(2), first: 0, end: 100 });
    texts(bench).join("").matches("HistoryRecord").count()
}

#[test]
fn a_pack_drops_old_revisions_and_the_master_is_told() {
    let (mut bench, one) = with_history();
    assert_eq!(revisions(&mut bench, one), 5);
    pack(&mut bench, one, None);
    assert_eq!(revisions(&mut bench, one), 1);
    assert!(bench.load(one, 2).contains("serial: Tid(33)"));
}

#[test]
fn a_cell_that_goes_while_the_node_looks_for_packs_holds_up_no_pack() {
    let rows = [vec![(1, UpToDate)], vec![(1, Feeding), (2, OutOfDate)]];
    let mut bench = Bench::operating(1, &rows);
    let (id, until) = (Tid(71), Tid(51));
    bench.master_tells(NotifyPackSigned { approved: vec![id], rejected: Vec::new() });
    let asked = bench.asked("AskPackOrders");
    let order = PackOrder { id, approved: Some(true), partial: false, oids: None, tid: until };
    bench.tell(bench.master, asked, AnswerPackOrders { orders: vec![order] });
    assert_eq!(texts(&mut bench), [""; 0], "a cell is left that is not packed");
    bench.hold();
    let change = |number, partition, node, state| {
        let changes = vec![CellChange { partition: Partition(partition), node, state }];
        NotifyPartitionChanges { table: TableId(number), replicas: 0, changes }
    };
    bench.master_tells(change(2, 0, storage(1), UpToDate));
    bench.master_tells(change(3, 1, storage(2), UpToDate));
    bench.master_tells(change(4, 1, storage(1), Discarded));
    bench.release();
    assert_eq!(texts(&mut bench), ["NotifyPackCompleted(NotifyPackCompleted { id: Tid(47) })"]);
}

#[test]
fn a_pack_reads_the_cells_once_however_many_there_are() {
    let writes_of = |partitions| {
        let mut bench = Bench::operating(1, &vec![vec![(1, UpToDate)]; partitions]);
        let (id, tid) = (Tid(71), Tid(51));
        bench.master_tells(NotifyPackSigned { approved: vec![id], rejected: Vec::new() });
        let order = PackOrder { id, approved: Some(true), partial: false, oids: None, tid };
        let (asked, before) = (bench.asked("AskPackOrders"), bench.writes);
        bench.tell(bench.master, asked, AnswerPackOrders { orders: vec![order] });
        assert_eq!(texts(&mut bench), ["NotifyPackCompleted(NotifyPackCompleted { id: Tid(47) })"]);
        bench.writes - before
    };
    // A step for each cell.
    assert_eq!(writes_of(20), writes_of(2) + 18);
}

#[test]
fn a_partial_pack_leaves_other_objects_alone() {
    // There is no object 1: the next one is not meant.
    for oid in [1, 4] {
        let (mut bench, one) = with_history();
        pack(&mut bench, one, Some(vec![Oid(oid)]));
        assert_eq!(revisions(&mut bench, one), 5);
    }
    let (mut bench, one) = with_history();
    pack(&mut bench, one, Some(vec![Oid(2)]));
    assert_eq!(revisions(&mut bench, one), 1);
}

#[test]
fn a_truncated_database_ends_with_the_transaction() {
    let (mut bench, _) = with_history();
    bench.master_tells(StopOperation {});
    bench.master_tells(Truncate { tid: Tid(31) });
    bench.master_tells(AskRecovery {});
    assert!(texts(&mut bench).join("").contains("truncate_tid: Some(Tid(1f))"));
    bench.master_tells(AskLastIDs {});
    let said = texts(&mut bench).join("");
    assert!(said.contains("last_tid: Some(Tid(1f)), last_oid: Some(Oid(2))"), "{said}");
    bench.master_tells(AskRecovery {});
    assert!(texts(&mut bench).join("").contains("truncate_tid: None"));
}

#[test]
fn the_data_of_a_cell_that_is_taken_away_go() {
    let (mut bench, one) = with_history();
    let change = CellChange { partition: Partition(0), node: storage(1), state: Discarded };
    let other = CellChange { node: storage(2), state: UpToDate, ..change };
    let changes = vec![other, change];
    bench.master_tells(NotifyPartitionChanges { table: TableId(2), replicas: 0, changes });
    bench.names();
    assert!(bench.load(one, 2).contains("NonReadableCell"));
    let found = bench.database.read(|database| database.load(Oid(2), None, None));
    assert_eq!(found.unwrap().unwrap(), Loaded::Never);
}

#[test]
fn a_record_that_refers_to_a_missing_one_is_stored_with_its_data() {
    let mut bench = Bench::operating(2, &[vec![(1, UpToDate), (2, OutOfDate)]]);
    let answer = AnswerUnfinishedTransactions { max_tid: Tid(50), ttids: Vec::new() };
    bench.tell(bench.master, 2, answer);
    let (source, _) = bench.dialled.pop().unwrap();
    bench.node.connected(source);
    bench.work();
    let accepted = AcceptIdentification {
        node_type: NodeType::Storage,
        id: Some(storage(1)),
        your_id: Some(storage(2)),
    };
    bench.tell(source, 0, accepted);
    let nothing = AnswerFetchTransactions {
        next_tid: None,
        deleted: Vec::new(),
        completed_pack: Some(Tid(0)),
    };
    bench.tell(source, 1, nothing);
    use sha1::{Digest, Sha1};
    let record = AddObject {
        oid: Oid(2),
        serial: Tid(40),
        compression: 0,
        checksum: Checksum(Sha1::digest(b"data").into()),
        data: b"data",
        data_serial: Some(Tid(20)),
    };
    bench.tell(source, 2, record);
    let end = AnswerFetchObjects { next_tid: None, next_oid: None, deleted: Default::default() };
    bench.tell(source, 2, end);
    assert!(texts(&mut bench).last().unwrap().starts_with("NotifyReplicationDone"));
    let found = bench.database.read(|database| database.load(Oid(2), None, None));
    let Loaded::Found(record) = found.unwrap().unwrap() else { panic!("not found") };
    assert_eq!((record.data.unwrap().bytes, record.data_serial), (b"data".to_vec(), Some(Tid(20))));
}
