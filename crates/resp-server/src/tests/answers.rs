//! Answers of commands where they are easily others than those of the stock server.

use super::served;

#[test]
fn a_list_that_is_not_sorted_is_answered_backwards() {
    served(|running| async move {
        let mut peer = running.connect();
        peer.expect(&[
            ("RPUSH l 3 1 2 10", ":4"),
            ("SORT l BY nosort DESC", "*4 $2 10 $1 2 $1 1 $1 3"),
            ("SORT l BY nosort DESC LIMIT 1 2", "*2 $1 2 $1 1"),
            ("SORT l BY nosort LIMIT 1 2", "*2 $1 1 $1 2"),
            ("SORT l BY nosort DESC STORE m", ":4"),
            ("LRANGE m 0 -1", "*4 $2 10 $1 2 $1 1 $1 3"),
        ])
        .await;
    });
}

#[test]
fn a_move_that_waits_in_vain_is_answered_as_a_pop_is() {
    served(|running| async move {
        let mut peer = running.connect();
        for request in ["BLMOVE a b LEFT LEFT 0.001", "BRPOPLPUSH a b 0.001", "BLPOP a 0.001"] {
            assert_eq!(peer.ask(request).await, "*-1", "{request}");
        }
        let transaction = "MULTI\r\nBLMOVE a b LEFT LEFT 1\r\nBLPOP a 1\r\nEXEC";
        assert_eq!(peer.ask(transaction).await, "+OK +QUEUED +QUEUED *2 $-1 *-1");
    });
}
