//! Peers that break the protocol: their connections end, the node goes on.

use zodium_neo::CellState::UpToDate;
use zodium_neo::messages::*;
use zodium_neo::{Checksum, ClusterState, Extra, NodeType};
use zodium_neo_storage::Exit;
use zodium_types::{Oid, Tid};

use crate::support::{Bench, CLUSTER, client, information, time_of};

fn one_node() -> Bench {
    Bench::operating(1, &[vec![(1, UpToDate)]])
}

#[test]
fn strangers_must_identify_themselves_with_the_name_of_the_cluster() {
    let mut bench = one_node();
    let stranger = bench.node.accepted("stranger".to_owned());
    bench.tell(stranger, 0, AskObject { oid: Oid(1), at: None, before: None });
    assert_eq!((bench.names(), &bench.closed[..]), (vec!["Error".to_owned()], &[stranger][..]));
    let stranger = bench.node.accepted("stranger".to_owned());
    let identification = RequestIdentification {
        node_type: NodeType::Client,
        id: Some(client(1)),
        address: None,
        cluster: "another",
        id_timestamp: Some(time_of(1)),
        extra: Extra::default(),
    };
    bench.tell(stranger, 0, identification);
    assert!(bench.take()[0].1.contains("invalid cluster name"));
    assert_eq!(bench.closed.last(), Some(&stranger));
}

#[test]
fn a_client_waits_until_the_master_tells_of_it() {
    let mut bench = one_node();
    let early = bench.node.accepted("early".to_owned());
    let identification = RequestIdentification {
        node_type: NodeType::Client,
        id: Some(client(9)),
        address: None,
        cluster: CLUSTER,
        id_timestamp: Some(20.0),
        extra: Extra::default(),
    };
    bench.tell(early, 0, identification);
    assert!(bench.names().is_empty());
    let mut node = information(NodeType::Client, 9);
    node.id_timestamp = Some(20.0);
    bench.master_tells(NotifyNodeInformation { timestamp: 21.0, nodes: vec![node] });
    assert_eq!(bench.names(), ["AcceptIdentification"]);
}

#[test]
fn wrong_sums_and_unknown_transactions_end_a_connection() {
    let mut bench = one_node();
    for number in 1..3 {
        let one = bench.client(number);
        match number {
            1 => {
                let message = AskStoreObject {
                    oid: Oid(1),
                    serial: Tid(0),
                    compression: 0,
                    checksum: Checksum([1; 20]),
                    data: b"data",
                    data_serial: None,
                    ttid: Some(Tid(100)),
                };
                bench.tell(one, 1, message);
            }
            _ => bench.tell(one, 1, AskVoteTransaction { ttid: Tid(999) }),
        }
        assert_eq!((bench.names(), bench.closed.pop()), (vec!["Error".to_owned()], Some(one)));
    }
}

#[test]
fn ids_beyond_the_range_of_databases_are_refused() {
    let mut bench = one_node();
    let one = bench.client(1);
    bench.store(one, 100, u64::MAX, 0, b"data");
    assert_eq!(bench.closed.pop(), Some(one));
}

#[test]
fn a_tid_beyond_the_range_of_databases_is_not_taken_from_a_master() {
    let mut bench = one_node();
    let one = bench.client(1);
    bench.store(one, 100, 5, 0, b"data");
    bench.tell(one, 2, AskVoteTransaction { ttid: Tid(100) });
    bench.names();
    let (ttid, tid) = (Tid(100), Tid(1 << 63));
    bench.master_tells(AskLockInformation { ttid, tid, pack_approved: false });
    assert_eq!(bench.closed.first(), Some(&bench.master));
}

#[test]
fn metadata_that_a_column_of_mariadb_cannot_hold_are_refused_at_the_vote() {
    let mut bench = one_node();
    let one = bench.client(1);
    bench.store(one, 100, 1, 0, b"data");
    let too_long = vec![b'x'; 65_536];
    let vote = AskStoreTransaction {
        ttid: Tid(100),
        user: b"",
        description: &too_long,
        extension: b"",
        oids: vec![Oid(1)],
        pack: None,
    };
    bench.tell(one, 2, vote);
    let said = &bench.take()[0].1;
    assert!(said.contains("BackendNotImplemented") && said.contains("65536 bytes"), "{said}");
    assert!(bench.closed.is_empty() && bench.exit.is_none());
    bench.tell(one, 4, AbortTransaction { ttid: Tid(100), nodes: Vec::new() });
    bench.store(one, 102, 1, 0, b"data");
    bench.commit(one, 102, 103, &[1]);
    assert!(bench.load(one, 1).contains("serial: Tid(67)"));
}

#[test]
fn messages_of_the_master_from_a_client_are_refused() {
    let mut bench = one_node();
    let one = bench.client(1);
    bench.tell(one, 1, NotifyClusterInformation { state: ClusterState::Stopping });
    assert_eq!((bench.names(), bench.closed.pop()), (vec!["Error".to_owned()], Some(one)));
}

#[test]
fn a_lost_master_ends_operation_and_the_next_one_is_dialled() {
    let mut bench = one_node();
    let one = bench.client(1);
    bench.node.closed(bench.master);
    bench.work();
    assert_eq!((bench.closed.pop(), bench.dialled.len()), (Some(one), 1));
}

#[test]
fn the_master_ends_the_node() {
    for (state, exit) in [
        (zodium_neo::NodeState::Down, Exit::Stopped),
        (zodium_neo::NodeState::Unknown, Exit::Erase),
    ] {
        let mut bench = one_node();
        let mut node = information(NodeType::Storage, 1);
        node.state = state;
        bench.master_tells(NotifyNodeInformation { timestamp: 11.0, nodes: vec![node] });
        assert_eq!(bench.exit, Some(exit));
    }
}
