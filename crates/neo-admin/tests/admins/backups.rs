//! Admins of a cluster and of its backups.

use zodium_neo::messages::*;
use zodium_neo::{ClusterState, ErrorCode, Extra, NodeType, Value};
use zodium_types::Tid;

use crate::support::{Bench, address};

/// What the admin of a backup that is fine tells.
fn fine() -> NotifyMonitorInformation<'static> {
    let cells = vec![(Value::Extension { kind: 0, payload: &[1] }, Value::Int(3))];
    NotifyMonitorInformation {
        information: Extra::from_iter([
            ("cluster_state", Value::Extension { kind: 1, payload: &[5] }),
            ("down", Value::Int(0)),
            ("pt_summary", Value::Map(cells)),
        ]),
    }
}

fn summary(bench: &mut Bench, operator: zodium_neo::ConnectionId) -> String {
    bench.answer(operator, 5).replace("\\n", "|")
}

#[test]
fn a_backup_that_has_everything_is_fine() {
    let mut bench = Bench::running(&["copy", "other"]);
    let backup = bench.backup("copy");
    assert!(bench.answer(backup, 0).starts_with("AcceptIdentification"));
    bench.tell(backup, 1, fine());
    // A change of a backup begins a round.
    bench.answer_last_tid(bench.master, 0x0400_0000_0000_0000);
    let id = bench.take(backup, "AskRecovery");
    let recovery = |backup_tid| AnswerRecovery { table: None, backup_tid, truncate_tid: None };
    bench.tell(backup, id, recovery(Some(Tid(0x0400_0000_0000_0000))));
    bench.answer_last_tid(backup, 0x0400_0000_0000_0000);
    assert_eq!(bench.names(), Vec::<String>::new());
    let operator = bench.operator();
    bench.tell(operator, 5, AskMonitorInformation {});
    bench.answer_last_tid(bench.master, 0x0400_0001_0000_0000);
    let id = bench.take(backup, "AskRecovery");
    bench.tell(backup, id, recovery(Some(Tid(0x0400_0000_0000_0000))));
    bench.answer_last_tid(backup, 0x0400_0000_0000_0000);
    assert_eq!(
        summary(&mut bench, operator),
        "AnswerMonitorInformation(AnswerMonitorInformation { warnings: [Some(\"copy\")], \
         problems: [Some(\"other\")], summary: \"RUNNING; UP_TO_DATE=2; ltid=0400000100000000 \
         (2025-04-11 09:05:00)||copy|    BACKINGUP; UP_TO_DATE=3; ltid=0400000000000000; \
         lag=60.0||other|    None\" })"
    );
}

#[test]
fn a_backup_that_does_not_answer_is_given_up() {
    let mut bench = Bench::running(&["copy"]);
    let backup = bench.backup("copy");
    bench.tell(backup, 1, fine());
    let alarm = *bench.alarms.last().unwrap();
    let operator = bench.operator();
    bench.tell(operator, 5, AskMonitorInformation {});
    bench.answer_last_tid(bench.master, 1);
    bench.names();
    bench.admin.woken(alarm - 1);
    bench.work();
    assert!(bench.closed.is_empty());
    bench.admin.woken(alarm);
    bench.work();
    assert_eq!(bench.closed, [backup]);
    let summary = summary(&mut bench, operator);
    assert!(summary.contains("problems: [Some(\"copy\")]"), "{summary}");
    assert!(summary.ends_with("||copy|    None\" })"), "{summary}");
}

#[test]
fn only_backups_that_were_named_may_connect_and_once() {
    let mut bench = Bench::running(&["copy"]);
    let stranger = bench.backup("stranger");
    let (code, text) = bench.refusal(stranger, 0);
    assert_eq!(code, ErrorCode::ProtocolError);
    assert!(text.contains("--monitor-backup"), "{text}");
    let named = bench.backup(&"x".repeat(1 << 20));
    assert!(bench.refusal(named, 0).1.len() < 200);
    assert_eq!(bench.closed.pop(), Some(named));
    let one = bench.backup("copy");
    bench.names();
    let other = bench.backup("copy");
    let refusal = (ErrorCode::ProtocolError, "already connected".to_owned());
    assert_eq!(bench.refusal(other, 0), refusal);
    assert_eq!(bench.closed, [stranger, other]);
    bench.cut(one);
    let again = bench.backup("copy");
    assert!(bench.answer(again, 0).starts_with("AcceptIdentification"));
    let wrong = Extra::from_iter([("down", Value::Int(-1))]);
    bench.tell(again, 3, NotifyMonitorInformation { information: wrong });
    assert_eq!(bench.refusal(again, 3).1, "down is not what the protocol says");
}

#[test]
fn an_error_of_a_backup_ends_what_waits_for_it_or_else_the_connection() {
    let mut bench = Bench::running(&["copy"]);
    let backup = bench.backup("copy");
    bench.tell(backup, 1, fine());
    bench.answer_last_tid(bench.master, 1);
    let id = bench.take(backup, "AskRecovery");
    let error = |message| Error { code: ErrorCode::NotReady, message };
    bench.tell(backup, id, error("not now"));
    let id = bench.take(backup, "AskLastTransaction");
    bench.names();
    let operator = bench.operator();
    bench.tell(operator, 5, AskMonitorInformation {});
    assert_eq!(bench.names(), Vec::<String>::new());
    bench.tell(backup, id, error("not now"));
    assert!(summary(&mut bench, operator).contains("||copy|"));
    assert!(bench.closed.is_empty());
    bench.tell(backup, id, error("an answer to nothing"));
    assert_eq!(
        (bench.refusal(backup, id).1, &bench.closed[..]),
        ("unexpected Error".to_owned(), &[backup][..])
    );
}

#[test]
fn the_admin_of_a_backup_tells_the_upstream_one() {
    let mut bench = Bench::running(&[]);
    bench.master_tells(NotifyUpstreamAdmin { address: address(499) });
    let (upstream, dialled) = bench.dialled.pop().unwrap();
    assert_eq!(dialled, address(499));
    bench.admin.connected(upstream);
    bench.work();
    assert_eq!(bench.names(), ["RequestIdentification"]);
    bench.master_tells(NotifyClusterInformation { state: ClusterState::Verifying });
    assert_eq!(bench.names(), Vec::<String>::new());
    let accepted = AcceptIdentification { node_type: NodeType::Admin, id: None, your_id: None };
    bench.tell(upstream, 0, accepted);
    assert_eq!(bench.names(), ["NotifyMonitorInformation"]);
    bench.master_tells(NotifyClusterInformation { state: ClusterState::Recovering });
    assert_eq!(bench.names(), ["NotifyMonitorInformation"]);
    // It may ask what it reports, and order nothing.
    bench.tell(upstream, 4, AskLastTransaction {});
    let id = bench.take(bench.master, "AskLastTransaction");
    bench.tell(bench.master, id, AnswerLastTransaction { tid: Tid(9) });
    assert!(bench.answer(upstream, 4).starts_with("AnswerLastTransaction"));
    let operator = bench.operator();
    bench.tell(operator, 5, AskNodeList { node_type: Some(NodeType::Admin) });
    assert_eq!(bench.answer(operator, 5).matches("node_type").count(), 2);
    bench.tell(upstream, 5, SetClusterState { state: ClusterState::Stopping });
    assert_eq!(bench.refusal(upstream, 5).0, ErrorCode::ProtocolError);
    assert_eq!(
        (bench.closed.last(), bench.dialled.pop().unwrap().1),
        (Some(&upstream), address(499))
    );
}
