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
