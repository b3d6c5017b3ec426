//! A client of a NEO cluster does what every storage must do, with one storage node and with
//! replicas. All nodes are ours.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod cluster;

use cluster::{Shape, open};
use zodium_storage_kit::Tester;

/// What a cluster does otherwise, with the reason.
const OTHERWISE: [(&str, &str); 23] = [
    ("size_and_objects_grow", "a cluster does not tell its clients its size"),
    ("many_objects_are_counted", "the largest oid stands for the number of objects"),
    ("commits_from_many_threads_are_counted", "as above"),
    ("packed_objects_are_not_counted", "as above"),
    ("storage_is_read_after_it_was_closed", "a client that was closed has left the cluster"),
    ("same_as_an_unknown_transaction_is_refused", "it is refused later, at the store"),
    ("walk_shows_deleted_objects_without_data", "storages list living objects only"),
    ("pointing_record_has_no_size_of_its_own", "storages tell the size of what it points to"),
    ("applied_transactions_come_back_as_they_were", "a client cannot tell a cluster a status"),
    ("copied_transaction_keeps_its_status", "as above"),
    ("packed_status_cannot_be_undone", "as above"),
    ("undone_status_cannot_be_undone", "such a transaction is kept without its records"),
    ("undone_transaction_does_not_count", "as above"),
    ("pack_tells_what_it_frees", "storages do not tell what a pack has freed"),
    ("second_pack_frees_nothing", "as above"),
    ("pack_to_before_everything_frees_nothing", "as above"),
    ("pack_to_before_the_last_pack_frees_nothing", "as above"),
    ("pack_drops_transactions_without_records", "transactions stay, and the order is one more"),
    ("pack_keeps_the_last_tid", "the order of a pack is a transaction"),
    ("packed_transactions_say_so", "storages pack records, and leave transactions as they are"),
    ("pack_drops_what_the_root_does_not_lead_to", "a pack collects no garbage"),
    ("back_pointers_lead_to_records_that_a_pack_has_left", "storages name records that are gone"),
    ("cursor_goes_on_over_a_pack", "a cursor reads from storages, which have packed meanwhile"),
];

/// Transactions that bring their tids, with one storage.
mod copies {
    fn open() -> super::Tester {
        super::open(super::Shape { storages: 1, partitions: 1, replicas: 0 }).into()
    }

    const REFUSED: &str = "storages are told at the finish only, and refuse what was packed";
    /// The same, and one more.
    const OTHERWISE: [(&str, &str); super::OTHERWISE.len() + 1] = {
        let mut all =
            [("pack_keeps_what_a_voted_undo_brings_back", REFUSED); super::OTHERWISE.len() + 1];
        let (others, _) = all.split_at_mut(super::OTHERWISE.len());
        others.copy_from_slice(&super::OTHERWISE);
        all
    };

    zodium_storage_kit::check_storage!(open, without: OTHERWISE);
}

/// Transactions as clients make them, with replicas.
mod commits {
    fn open() -> super::Tester {
        let opened = super::open(super::Shape { storages: 2, partitions: 7, replicas: 1 });
        super::Tester::from(opened).sharing()
    }

    zodium_storage_kit::check_storage!(open, without: super::OTHERWISE);
}

#[test]
fn more_new_oids_than_a_master_gives_at_once_are_refused_before_it_is_asked() {
    let (storage, _nodes) = open(Shape { storages: 1, partitions: 1, replicas: 0 });
    assert_eq!(storage.new_oids((1 << 20) + 1), None);
    assert_eq!(storage.new_oids(1 << 20), Some(1..=1 << 20), "the connection is the same");
}
