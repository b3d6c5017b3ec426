//! Loads that are answered from memory, and what ends that.

use zodium_neo::CellState::{Discarded, UpToDate};
use zodium_neo::messages::*;
use zodium_neo::{Partition, TableId};
use zodium_neo_storage::ConnectionId;
use zodium_types::{Oid, Tid};

use crate::support::{Bench, storage};

/// A node with object 4, which transaction 102 has written.
fn stored() -> (Bench, ConnectionId) {
    let mut bench = Bench::operating(1, &[vec![(1, UpToDate)]]);
    let one = bench.client(1);
    bench.store(one, 100, 4, 0, b"data");
    bench.commit(one, 100, 102, &[4]);
    (bench, one)
}

fn remembered(bench: &Bench) -> u64 {
    bench.node.status().counts.remembered_loads
}

fn load_before(bench: &mut Bench, one: ConnectionId, before: u64) -> String {
    let before = Some(Tid(before));
    bench.tell(one, 3, AskObject { oid: Oid(4), at: None, before });
    bench.take().into_iter().map(|(_, text)| text).collect()
}

#[test]
fn a_record_is_read_once_until_it_is_changed() {
    let (mut bench, one) = stored();
    let first = bench.load(one, 4);
    assert!(first.contains("serial: Tid(66), next_serial: None"), "{first}");
    assert_eq!(remembered(&bench), 0);
    assert_eq!((bench.load(one, 4), load_before(&mut bench, one, 103)), (first.clone(), first));
    assert_eq!((remembered(&bench), bench.node.status().counts.loads), (2, 3));
    bench.store(one, 110, 4, 102, b"later");
    bench.commit(one, 110, 112, &[4]);
    for number in 0..2 {
        let said = bench.load(one, 4);
        assert!(said.contains("serial: Tid(70), next_serial: None"), "{said}");
        assert_eq!(remembered(&bench), 2 + number);
    }
    let old = load_before(&mut bench, one, 112);
    assert!(old.contains("serial: Tid(66), next_serial: Some(Tid(70))"), "{old}");
    assert_eq!(remembered(&bench), 3);
}

#[test]
fn a_record_in_memory_is_not_shown_between_lock_and_unlock() {
    let (mut bench, one) = stored();
    bench.load(one, 4);
    bench.store(one, 110, 4, 102, b"later");
    bench.vote_and_lock(one, 110, 112, &[4]);
    assert_eq!(bench.load(one, 4), "");
    bench.master_tells(NotifyUnlockInformation { ttid: Tid(110) });
    let said = bench.take();
    assert!(said[0].1.contains("serial: Tid(70)"), "{said:?}");
}

#[test]
fn what_is_remembered_goes_with_its_cell() {
    let (mut bench, one) = stored();
    bench.load(one, 4);
    let change = CellChange { partition: Partition(0), node: storage(1), state: Discarded };
    let other = CellChange { node: storage(2), state: UpToDate, ..change };
    let back = CellChange { state: UpToDate, ..change };
    for (number, changes) in [(2, vec![other, change]), (3, vec![back])] {
        let table = TableId(number);
        bench.master_tells(NotifyPartitionChanges { table, replicas: 0, changes });
    }
    bench.names();
    let said = bench.load(one, 4);
    assert!(said.contains("OidDoesNotExist"), "{said}");
}

#[test]
fn nothing_is_remembered_in_a_backup_cluster() {
    let (mut bench, one) = stored();
    bench.load(one, 4);
    bench.master_tells(StartOperation { backup: true });
    bench.names();
    for _ in 0..2 {
        let said = bench.load(one, 4);
        assert!(said.contains("serial: Tid(66)"), "{said}");
    }
    assert_eq!(remembered(&bench), 0);
}

#[test]
fn one_read_of_a_connection_is_answered_from_memory_up_to_a_limit() {
    let (mut bench, one) = stored();
    let data = vec![7; 100_000];
    bench.store(one, 110, 4, 102, &data);
    bench.commit(one, 110, 112, &[4]);
    bench.load(one, 4);
    for id in 0..20 {
        let message = AskObject { oid: Oid(4), at: None, before: None };
        bench.node.received(one, zodium_neo::Packet { id, message: message.into() });
    }
    bench.work();
    assert_eq!(remembered(&bench), 11, "a MiB, and no more at once");
    assert_eq!(bench.names().len(), 20);
}
